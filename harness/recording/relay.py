"""Passing a stream on while its last part is kept, in a process of its own.

It goes on when hanglab is killed, so that the job never writes into a broken
pipe.  A terminal stays one: the job gets the other end of a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import stat
import termios
from dataclasses import dataclass
from pathlib import Path

#: Bytes that are kept at least, and at which the file is cut down to them.
KEPT = 64 * 1024
_MOST = 4 * KEPT


@dataclass(frozen=True)
class Streams:
    """Output and error of the command, and the file that keeps the error's end."""

    #: Descriptors for 1 and 2; None where it simply inherits hanglab's own.
    output: int | None
    error: int | None
    #: File that holds the end of what was written, from this byte on.
    tail: Path | None
    start: int
    #: The relay's process, if there is one.
    relay: int | None

    def close(self) -> None:
        """Let go of the command's ends, which it has by now."""
        for descriptor in {self.output, self.error} - {None}:
            assert descriptor is not None
            os.close(descriptor)


def set_up(tail: Path) -> Streams:
    """Put a relay before standard error unless that is a file anyway.

    Must be called before threads are started.  Where output and error go to the
    same place they share the relay, so that their order stays.
    """
    try:
        error = os.fstat(2)
    except OSError:
        return Streams(None, None, None, 0, None)
    if stat.S_ISREG(error.st_mode):
        path = Path(os.readlink("/proc/self/fd/2"))
        return Streams(None, None, path, error.st_size, None)
    if stat.S_ISCHR(error.st_mode) and not os.isatty(2):
        return Streams(None, None, None, 0, None)
    try:
        reader, writer = _open(os.isatty(2))
    except OSError:
        return Streams(None, None, None, 0, None)
    relay = os.fork()
    if relay == 0:
        os.close(writer)
        _run(reader, tail)
    os.close(reader)
    shared = _same(1, 2)
    return Streams(writer if shared else None, writer, tail, 0, relay)


def resize(relay: int) -> None:
    """The terminal has another size now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(relay, signal.SIGWINCH)


def _open(terminal: bool) -> tuple[int, int]:
    if not terminal:
        return os.pipe2(os.O_CLOEXEC)
    reader, writer = pty.openpty()
    attributes = termios.tcgetattr(writer)
    attributes[1] &= ~termios.OPOST  # the real terminal does that
    termios.tcsetattr(writer, termios.TCSANOW, attributes)
    _copy_size(writer)
    return reader, writer


def _copy_size(to: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(to, termios.TIOCSWINSZ, fcntl.ioctl(2, termios.TIOCGWINSZ, b"\0" * 8))


def _same(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino, first.st_rdev) == (
        second.st_dev,
        second.st_ino,
        second.st_rdev,
    )


def _run(reader: int, tail: Path) -> None:
    """The relay's life.  Does not return."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGWINCH, lambda *_: _copy_size(reader))
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
        _copy(reader, tail)
    finally:
        os._exit(0)


def _copy(reader: int, tail: Path) -> None:
    kept = b""
    file: int | None = None
    with contextlib.suppress(OSError):
        file = os.open(tail, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    size = 0
    while True:
        try:
            data = os.read(reader, 1 << 16)
        except OSError:  # of a terminal whose other end is closed
            return
        if not data:
            return
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(2, view) :]
            except OSError:  # nobody reads on: neither can the job go on writing
                return
        if file is None:
            continue
        kept = (kept + data)[-KEPT:]
        try:
            if size + len(data) > _MOST:
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
                size = os.write(file, kept)
            else:
                size += os.write(file, data)
        except OSError:  # a full disk must not hold up the job
            os.close(file)
            file = None
