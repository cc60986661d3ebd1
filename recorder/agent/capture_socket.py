"""Letting others ask the agent for a capture, over a socket in the runtime folder.

One line of JSON, ``{"command": "capture", "detail": "..."}``, is answered by one:
``{"captured": true, "case": "..."}`` once the Case has been written.  Before it, while it does not
show yet whether the job moves, come lines as ``{"captured": false, "rested_s": 7, "limit_s": 60}``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

#: Name of the socket in the runtime folder.
NAME = "agent.sock"
_PATH_BYTES = 100
#: Seconds between two lines to who waits.
_TELL_EVERY_S = 5.0


class _CaptureReply(msgspec.Struct):
    captured: bool
    rested_s: float = 0.0
    limit_s: float = 0.0


class CaptureSocket:
    """Listens, and keeps the connections that wait for a capture."""

    def __init__(self, runtime: Path) -> None:
        self.address = runtime / NAME
        self._listener: socket.socket | None = None
        self._waiting: list[socket.socket] = []
        self._last_told_s = float("-inf")
        if len(os.fsencode(self.address)) > _PATH_BYTES:
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address)
            listener.bind(os.fspath(self.address))
            os.chmod(self.address, 0o600)
            listener.listen(4)
            listener.setblocking(False)
        except OSError:
            listener.close()
            return
        self._listener = listener

    @property
    def descriptor(self) -> int | None:
        return self._listener.fileno() if self._listener is not None else None

    def accept(self) -> str | None:
        """The reason for which somebody asks for a capture; None if nobody does."""
        if self._listener is None:
            return None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return None
        connection.settimeout(1.0)
        try:
            line = connection.makefile("rb").readline(4096)
            request = msgspec.json.decode(line, type=dict[str, str])
            if request.get("command") != "capture":
                raise ValueError
        except (OSError, ValueError, msgspec.MsgspecError):
            connection.close()
            return None
        self._waiting.append(connection)
        return request.get("detail", "")

    def tell_rest(self, rested_s: float, limit_s: float) -> None:
        """Tell those who wait, now and then, for how long of which limit the job has rested."""
        if time.monotonic() - self._last_told_s < _TELL_EVERY_S:
            return
        self._last_told_s = time.monotonic()
        line = msgspec.json.encode({"captured": False, "rested_s": rested_s, "limit_s": limit_s})
        for connection in self._waiting:
            with contextlib.suppress(OSError):
                connection.sendall(line + b"\n")

    def answer(self, case: Path) -> None:
        """Tell those who wait that the Case has been written."""
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            with contextlib.suppress(OSError), connection:
                answer = msgspec.json.encode({"captured": True, "case": str(case)})
                connection.sendall(answer + b"\n")

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            with contextlib.suppress(OSError):
                os.unlink(self.address)
        for connection in self._waiting:
            connection.close()


def request_capture(
    runtime: Path, detail: str, timeout_s: float, told: Callable[[float, float], None]
) -> bool:
    """Ask the agent of a runtime folder; False where none answers in time.

    ``told`` gets the seconds for which the job has rested and the limit, while it rests.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(os.fspath(runtime / NAME))
            request = {"command": "capture", "detail": detail}
            connection.sendall(msgspec.json.encode(request) + b"\n")
            answers = connection.makefile("rb")
            while time.monotonic() < deadline:
                answer = msgspec.json.decode(answers.readline(1 << 16), type=_CaptureReply)
                if answer.captured:
                    return True
                told(answer.rested_s, answer.limit_s)
    except (OSError, msgspec.MsgspecError):
        pass
    return False
