"""A lock on a file, which ends with its holder however that dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

#: Descriptors of locks held by this process.  A forked child has copies, and with
#: them the locks would outlive a killed parent.
_held: set[int] = set()


def _close_copies() -> None:
    for descriptor in list(_held):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_copies)


class Lock:
    """A lock that this process holds."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        _held.add(descriptor)

    def sign(self, purpose: str) -> None:
        """Writes into the file who holds it and what for, so that others can say it."""
        text = json.dumps({"pid": os.getpid(), "purpose": purpose})
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)

    def release(self) -> None:
        """Calling it again does nothing."""
        if self._descriptor in _held:
            _held.discard(self._descriptor)
            # Closing alone would not do while a process in the making has a copy.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
        self._descriptor = -1


def try_lock(path: Path) -> Lock | None:
    """The lock on ``path``, or None where somebody holds it.  Raises OSError."""
    return _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for the lock on ``path`` and holds it; for moments only.  Raises OSError."""
    lock = _lock(path, fcntl.LOCK_EX)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def _lock(path: Path, how: int) -> Lock | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(path, descriptor)


def describe_holder(path: Path) -> str:
    """Signature of a lock that is held, such as ``skipped_collective fault of process 4711``."""
    try:
        signed = json.loads(path.read_bytes())
        return f"{signed['purpose'] or 'a job'} of process {signed['pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that does not say its name"
