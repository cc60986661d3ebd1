"""File systems without room: a disk that somebody fills, a /dev/shm that is too small."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts, HostSettings
from hanglab.harness.system.namespaces import in_mounts
from hanglab.recorder.system.mount_table import space_of

_SHM = "/dev/shm"
_PAGE = 4096


@dataclass(frozen=True, kw_only=True)
class FillDisk(HostFault):
    """Fills the disk of ``mebibytes`` that every node has at ``at``, to the last byte.

    It is a tmpfs: what the kernel says of a full one is the same.
    """

    at: str = "/scratch"
    mebibytes: int = 16
    needs = "outside_processes"

    def prepare(self, number: int, settings: HostSettings) -> None:
        settings.tmpfs[self.at] = f"size={self.mebibytes}m,mode=1777"

    def strike_host(self, hosts: Hosts) -> Undo:
        folder = f"/proc/{hosts.of_rank(self.rank).pid}/root{self.at}"
        ballast = f"{folder}/.ballast-{secrets.token_hex(4)}"

        def clear() -> None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(ballast)

        fill(ballast)
        return clear

    def probe(self, hosts: Hosts) -> SpaceProbe:
        return SpaceProbe(hosts.of_rank(self.rank), self.at, _PAGE)


def fill(path: str) -> None:
    """Writes a file until nothing more fits beside it.

    It asks for what is free, so that all of it is taken at once and not before:
    a probe that takes the last page for a moment would leave it free.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        size, piece = 0, max(space_of(path).free_bytes or 0, _PAGE)
        while piece:
            try:
                os.posix_fallocate(descriptor, size, piece)
                size += piece
            except OSError:
                piece = piece // 2 if piece > _PAGE else 0
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class ShrinkShm(HostFault):
    """From now on the node's /dev/shm holds no more than ``kibibytes``.

    The kernel refuses a size below what is in use.
    """

    kibibytes: int
    needs = "outside_processes"

    def strike_host(self, hosts: Hosts) -> Undo:
        pid = hosts.of_rank(self.rank).pid
        before = space_of(f"/proc/{pid}/root{_SHM}").size_bytes

        def widen() -> None:
            in_mounts(pid, "/bin/mount", "-o", f"remount,size={before}", _SHM)

        in_mounts(pid, "/bin/mount", "-o", f"remount,size={self.kibibytes}k", _SHM)
        return widen

    def probe(self, hosts: Hosts) -> SpaceProbe:
        return SpaceProbe(hosts.of_rank(self.rank), _SHM, (self.kibibytes << 10) + _PAGE)


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


class SpaceProbe:
    """So many bytes must be refused, and must have fitted before."""

    def __init__(self, host: Host, path: str, size: int) -> None:
        self._host, self._path, self._size = host, path, size
        self._folder = f"/proc/{host.pid}/root{path}"
        if error := _take(self._folder, size):
            raise OSError(error, f"{path} has no room as it is: {os.strerror(error)}")

    def struck(self) -> Reading:
        # Where there is room nothing is taken: the fault may be about to take it.
        free = space_of(self._folder).free_bytes or 0
        if free >= self._size:
            return Reading(False, f"{free} bytes of {self._path} are free", {"errno": 0})
        error = _take(self._folder, self._size)
        return Reading(error == errno.ENOSPC, self._words(error), {"errno": error})

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        error = _take(self._folder, self._size)
        return Reading(error == 0, self._words(error), {"errno": error})

    def _words(self, error: int) -> str:
        said = os.strerror(error) if error else "done"
        return f"taking {self._size} bytes of {self._path}: {said}"
