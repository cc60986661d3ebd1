"""The agent's end of the fabric: one datagram socket, bound to the name that Kineto looks for."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path
from typing import NamedTuple

from hanglab.recorder.profiling import fabric

_CREDENTIALS = struct.Struct("@iII")
#: Python's socket module lacks it; its message is a timespec of wall time.
_SO_TIMESTAMPNS = 35
_TIMESTAMP = struct.Struct("@qq")
#: Kineto waits some 90 ms for an answer.  One that comes later it would take for the answer to its
#: next request, and so on with all that follow: each would be a period late.
PATIENCE_S = 0.075


class SocketNameTaken(OSError):
    """Another daemon has the name already."""


class Received(NamedTuple):
    """A datagram."""

    data: bytes
    address: str | bytes
    #: The sender's process id as this process sees it; None if unknown.
    pid: int | None
    #: Wall time at which it was sent, in seconds.
    sent_s: float

    @property
    def age_s(self) -> float:
        return time.time() - self.sent_s

    @property
    def awaited(self) -> bool:
        """True if its sender still waits for the answer."""
        return self.age_s < PATIENCE_S


class FabricSocket:
    """Receives requests with their sender's process id, and answers from the bound socket.

    An answer from any other socket aborts the training process.
    """

    def __init__(self, folder: Path | None) -> None:
        """``folder``: of the socket files, None for the abstract namespace.

        Raises SocketNameTaken, and OSError where the folder cannot be used.
        """
        self._path = folder / fabric.DAEMON if folder is not None else None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._bind()
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Received | None:
        """The next datagram; None where nothing is there."""
        try:
            data, ancillary, flags, address = self._socket.recvmsg(
                fabric.MAX_DATAGRAM,
                socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIMESTAMP.size),
            )
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None
        pid = None
        sent_s = time.time()
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                # 0 stands for a process of a namespace that is not below this one.
                pid = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0] or None
            elif (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, nanoseconds = _TIMESTAMP.unpack(content[: _TIMESTAMP.size])
                sent_s = seconds + nanoseconds / 1e9
        if flags & socket.MSG_TRUNC:
            data = b""
        return Received(data, address or b"", pid, sent_s)

    def answer(self, address: str | bytes, data: bytes) -> None:
        """Never blocks: a process that does not read gets nothing."""
        with contextlib.suppress(OSError):
            self._socket.sendto(data, address)

    def close(self) -> None:
        self._socket.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _bind(self) -> None:
        if self._path is None:
            # The trailing NUL is part of the name.
            name = b"\0" + fabric.DAEMON.encode() + b"\0"
            try:
                self._socket.bind(name)
            except OSError as error:
                raise SocketNameTaken(
                    error.errno, "another profiling daemon runs on this host"
                ) from None
            return
        path = os.fspath(self._path)
        if self._path.exists() and not _dead(path):
            raise SocketNameTaken(0, f"another profiling daemon listens at {path}")
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._socket.bind(path)
        # As dynolog has it: jobs of other users, as in containers, may ask, and who may enter the
        # folder is for its owner to say.  Abstract names are open to all.
        self._path.chmod(0o666)


def _dead(path: str) -> bool:
    """True if nobody is behind a socket file any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def remove_dead_clients(folder: Path) -> int:
    """Remove the socket files that ended processes left behind; the number of them."""
    count = 0
    for path in folder.glob("dynoconfigclient*"):
        if path.is_socket() and _dead(os.fspath(path)):
            with contextlib.suppress(OSError):
                path.unlink()
                count += 1
    return count
