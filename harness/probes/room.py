"""Whether a container's file system takes what is written to it: by writing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets

from hanglab.harness.probes.probe import Reading

_PAGE = 4096


def _take(folder: str, size: int) -> int:
    """Error number of an attempt to use ``size`` bytes there for a moment; 0 where they fit."""
    path = f"{folder}/.probe-{secrets.token_hex(4)}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as failure:
        return failure.errno or errno.EIO
    try:
        os.posix_fallocate(descriptor, 0, size)
        return 0
    except OSError as failure:
        return failure.errno or errno.EIO
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)


class RoomProbe:
    """A page that fitted before must be refused."""

    def __init__(self, pid: int, path: str) -> None:
        self._path, self._folder = path, f"/proc/{pid}/root{path}"
        if error := _take(self._folder, _PAGE):
            raise OSError(error, f"{path} takes nothing as it is: {os.strerror(error)}")

    def struck(self) -> Reading:
        error = _take(self._folder, _PAGE)
        return Reading(error == errno.ENOSPC, self._words(error), {"errno": error})

    def ended(self) -> Reading:
        if not os.path.isdir(self._folder):
            return Reading(True, "the container has gone")
        error = _take(self._folder, _PAGE)
        return Reading(error == 0, self._words(error), {"errno": error})

    def _words(self, error: int) -> str:
        return f"writing a page to {self._path}: {os.strerror(error) if error else 'done'}"


class SizeProbe:
    """More than the new size must be refused, and must have fitted before."""

    def __init__(self, pid: int, path: str, size: int) -> None:
        self._path, self._folder, self._size = path, f"/proc/{pid}/root{path}", size + _PAGE
        if error := _take(self._folder, self._size):
            raise OSError(error, f"{path} is too small as it is: {os.strerror(error)}")

    def struck(self) -> Reading:
        error = _take(self._folder, self._size)
        return Reading(error == errno.ENOSPC, self._words(error), {"errno": error})

    def ended(self) -> Reading:
        if not os.path.isdir(self._folder):
            return Reading(True, "the container has gone")
        error = _take(self._folder, self._size)
        return Reading(error == 0, self._words(error), {"errno": error})

    def _words(self, error: int) -> str:
        said = os.strerror(error) if error else "done"
        return f"taking {self._size} bytes of {self._path}: {said}"
