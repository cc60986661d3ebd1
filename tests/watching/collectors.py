"""A collector of OpenTelemetry: a real server of HTTP that reads what it gets by its protocol."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Collector:
    """Records that were taken, and the answer that who comes gets."""

    port: int
    #: Codes of the next answers; 200 once there are none left.
    answers: list[int] = field(default_factory=list)
    #: Answers wait while it is not set.
    awake: threading.Event = field(default_factory=threading.Event)
    #: Requests that came.
    came: int = 0
    taken: list[Any] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}"}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        collector = self.server.collector
        collector.came += 1
        collector.awake.wait()
        code = collector.answers.pop(0) if collector.answers else 200
        try:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:
            return  # it has gone, and does not know that its event was taken
        if code == 200:
            (resource,) = ExportLogsServiceRequest.FromString(body).resource_logs
            (scope,) = resource.scope_logs
            collector.taken += scope.log_records

    def log_message(self, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    collector: Collector


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector that takes all that comes, unless it is told otherwise."""
    with _Server(("127.0.0.1", port), _Handler) as server:
        collector = server.collector = Collector(server.server_port)
        collector.awake.set()
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield collector
        finally:
            collector.awake.set()
            server.shutdown()
            serving.join()
