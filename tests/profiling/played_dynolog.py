"""Stands in for a dynolog daemon's TCP side, and for a job behind it.

It answers as dynolog/src/rpc/SimpleJsonServer.cpp does: ``int32`` in native
order and JSON, one request per connection, one connection after the other; a
request that it does not know is closed without an answer.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from played_kineto import write_trace


class PlayedDynolog:
    """``pids`` are the processes of job ``job_id``; ``writing`` are those that write a trace."""

    def __init__(self, *pids: int, job_id: int = 0, writing: tuple[int, ...] = ()) -> None:
        self.pids = pids
        self.job_id = job_id
        self.writing = writing
        self.busy: set[int] = set()
        self.requests: list[dict[str, Any]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                (length,) = struct.unpack("@i", connection.recv(4, socket.MSG_WAITALL))
                request = json.loads(connection.recv(length, socket.MSG_WAITALL))
                answer = self._answer(request)
                if answer is not None:
                    body = json.dumps(answer).encode()
                    connection.sendall(struct.pack("@i", len(body)))
                    connection.sendall(body)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if request["fn"] == "getStatus":
            return {"status": 1}
        if request["fn"] != "setKinetOnDemandRequest":
            return None
        self.requests.append(request)
        wanted = set(request["pids"]) - {0}
        there = self.pids if request["job_id"] == self.job_id else ()
        matched = [pid for pid in there if not wanted or pid in wanted]
        told = [pid for pid in matched if pid not in self.busy]
        for pid in set(told) & set(self.writing):
            # What Kineto leaves, at once instead of at the start that was asked for.
            write_trace(request["config"], pid)
        return {
            "activityProfilersBusy": len(matched) - len(told),
            "activityProfilersTriggered": told,
            "eventProfilersBusy": 0,
            "eventProfilersTriggered": [],
            "processesMatched": matched,
        }


@contextlib.contextmanager
def dynolog(*pids: int, job_id: int = 0, writing: tuple[int, ...] = ()) -> Iterator[PlayedDynolog]:
    found = PlayedDynolog(*pids, job_id=job_id, writing=writing)
    try:
        yield found
    finally:
        found.close()
