"""A process that plays Kineto's side of the fabric, for what a real one cannot be made to do.

It speaks through a real socket; jobs of real torch are in test_jobs.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from hanglab.recorder.profiling import fabric
from hanglab.recorder.profiling.configuration import trace_path, values_of
from hanglab.recorder.profiling.fabric import FabricRequest


class Played:
    """One client of a socket folder."""

    def __init__(self, folder: Path, pid: int, job_id: int = 0) -> None:
        self.folder = folder
        self.pid = pid
        self.job_id = job_id
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path = folder / f"dynoconfigclient{uuid.uuid4()}"
        self.socket.bind(os.fspath(self.path))
        #: Whom the latest answer came from.
        self.answered_by: object = None

    def ask(self, idle: bool = True) -> str:
        """One look for something to do; the text that came back."""
        until = time.monotonic() + 60.0
        while True:
            self.send(idle)
            # Who is late answers nothing: Kineto would take it for the answer to its next request.
            self.socket.settimeout(1.0)
            try:
                data, self.answered_by = self.socket.recvfrom(1 << 16)
            except TimeoutError:
                if time.monotonic() > until:
                    raise
                continue
            return fabric.decode_answer(data)

    def send(self, idle: bool = True) -> None:
        """Its question alone."""
        accepts = fabric.EVENTS | (fabric.ACTIVITIES if idle else 0)
        frame = fabric.encode_request(FabricRequest(accepts, self.job_id, (self.pid, os.getppid())))
        self.socket.sendto(frame, os.fspath(self.folder / fabric.DAEMON))

    def close(self) -> None:
        self.socket.close()
        with contextlib.suppress(OSError):
            self.path.unlink()


def write_trace(text: str, pid: int) -> None:
    """What Kineto does at the end: a .tmp that is renamed.

    One event at the start that the configuration names, else now.
    """
    values = values_of(text)
    path = Path(trace_path(values["ACTIVITIES_LOG_FILE"], pid))
    begin_us = (float(values.get("PROFILE_START_TIME", 0)) or time.time() * 1e3) * 1e3
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": pid, "tid": 1, "ts": begin_us}
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps({"traceEvents": [{**event, "dur": 5}]}))
    temporary.rename(path)


@contextlib.contextmanager
def played(folder: Path, *pids: int, job_id: int = 0) -> Iterator[list[Played]]:
    clients = [Played(folder, pid, job_id) for pid in pids]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()
