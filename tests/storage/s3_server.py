"""A server that speaks S3's protocol (moto's, no mock of the client), with faults in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Environ = dict[str, Any]
Respond = Callable[..., Any]

_DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@dataclass
class Faults:
    """What the server does to requests; each takes (method, path) and says whether it is meant."""

    #: Answers with 503, as a store that is too busy.
    refuse: Callable[[str, str], bool] = lambda method, path: False
    #: Answers with 403, as a store whose credentials have run out or are another's.
    deny: Callable[[str, str], bool] = lambda method, path: False
    #: Says that it has stored what it has not.
    lose: Callable[[str, str], bool] = lambda method, path: False
    #: Sends half of the answer and closes.
    cut: Callable[[str, str], bool] = lambda method, path: False
    seen: list[tuple[str, str]] = field(default_factory=list)

    def count(self, method: str) -> int:
        return sum(one == method for one, _ in self.seen)


@dataclass(frozen=True)
class S3Server:
    url: str
    faults: Faults


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """An empty S3 server on a port of loopback, until the context ends."""
    inner = DomainDispatcherApplication(create_backend_app)
    faults = Faults()

    def application(environ: Environ, respond: Respond) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        faults.seen.append((method, path))
        if faults.refuse(method, path):
            respond("503 Slow Down", [("Content-Type", "text/xml"), ("Content-Length", "0")])
            return [b""]
        if faults.deny(method, path):
            words = "" if method == "HEAD" else _DENIED
            length = str(len(words))
            respond("403 Forbidden", [("Content-Type", "text/xml"), ("Content-Length", length)])
            return [words.encode()]
        if faults.lose(method, path):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            respond("200 OK", [("ETag", '"0"'), ("Content-Length", "0")])
            return [b""]
        answer = inner(environ, respond)
        if faults.cut(method, path):
            whole = b"".join(answer)
            return [whole[: len(whole) // 2]]
        return answer

    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield S3Server(f"http://127.0.0.1:{server.server_port}", faults)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
