"""Folders for the sockets of a running job, and the removal of those that nobody uses any more.

Such a folder lies among the temporary files, where its path is short enough for
the address of a unix socket.  Whoever needs it holds a lock there as long as it
lives, so that a process's number, which may be given to another, decides
nothing.  Those who outlive the holder show by their sockets: to connect to one
whose owner is gone is refused.  What killed processes leave is swept by the next
agent that starts on the host.

Standard library only: the part that runs inside ranks uses this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from types import TracebackType

from hanglab.recorder.case import folders

#: Held by whoever needs the folder.
OWNER = "owner.lock"
#: Held while an owner is being found for a folder, or the folder is being removed.
LOCK = "lock"
#: A temporary folder with a longer path leaves no room for the addresses below it.
_LONGEST = 60
_SHARED = Path("/tmp")
_PREFIX = "hl-"
#: Names of a recorded command's folder, and of a harness's job's.
_NAMES = re.compile(_PREFIX + r"[a-z0-9_]{8}|hanglab-[0-9a-f]{8}")
#: Names of the folders in which the ranks of a job meet.
_MEETINGS = re.compile(r"[0-9a-f]{12}")


class FolderRemoved(FileNotFoundError):
    """Somebody has removed the folder just now: it is to be made anew."""


def temporary() -> Path:
    """The folder of temporary files, or ``/tmp`` where that has too long a path."""
    folder = tempfile.gettempdir()
    return Path(folder if len(folder) <= _LONGEST else "/tmp")


def meetings(among: Path | None = None) -> Path:
    """The user's folder of those in which ranks meet; among the temporary files by default."""
    return (among or temporary()) / f"hanglab-{os.getuid()}"


def of_host(case: Path, host: str) -> Path:
    """Folder of a Case's ranks on one of its hosts.

    It does not depend on TMPDIR: whoever looks for it may have another than its ranks.
    """
    digest = hashlib.sha256(f"{case}\0{host}".encode("utf-8", "surrogateescape")).hexdigest()
    return meetings(_SHARED) / digest[:12]


def make_meeting(folder: Path) -> None:
    """Make a folder in which ranks meet.  Raises PermissionError where it is somebody else's."""
    while True:
        try:
            folders.make_private(folder)
            if not (_is_private(folder.parent) and _is_private(folder)):
                raise PermissionError(f"{folder} is not this user's alone")
            # By its lock it is known for one of these, whoever is killed.
            os.close(hold(folder, LOCK))
            return
        except FileNotFoundError:  # an earlier agent has just removed it
            continue


def own_meeting(folder: Path) -> int:
    """Make a folder in which ranks meet, and hold it; the lock as a descriptor.  Raises OSError."""
    while True:
        make_meeting(folder)
        with contextlib.suppress(FolderRemoved):
            return hold(folder)


class Runtime:
    """A new folder of this process's, removed when it is closed.  Raises OSError."""

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary()))
            try:
                self._lock = hold(self.path)
                return
            except FolderRemoved:
                continue

    def close(self) -> None:
        empty(self.path)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def hold(folder: Path, name: str = OWNER) -> int:
    """Waits for a lock in the folder; the descriptor to be closed.

    Raises Cleared if the folder has been removed meanwhile, and OSError.
    """
    path = folder / name
    try:
        descriptor = folders.open_private(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError as error:
        raise FolderRemoved(str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not _is_at(descriptor, path):
            raise FolderRemoved(f"{path} has been replaced")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def claim(folder: Path, name: str = OWNER, flags: int = os.O_CREAT) -> int | None:
    """The lock if nobody has it, as a descriptor.  Raises OSError."""
    descriptor = folders.open_private(folder / name, os.O_RDWR | flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, folder / name):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def sweep() -> None:
    """Remove the folders of this user's that nobody uses."""
    with contextlib.suppress(OSError):
        for name in os.listdir(temporary()):
            if _NAMES.fullmatch(name):
                remove_unused(temporary() / name)
    for folder in {meetings(), meetings(_SHARED)}:
        with contextlib.suppress(OSError):
            if _is_private(folder):
                for name in os.listdir(folder):
                    if _MEETINGS.fullmatch(name):
                        remove_unused(folder / name, meeting=True)
                os.rmdir(folder)


def remove_unused(folder: Path, *, meeting: bool = False) -> None:
    """Remove the folder unless somebody holds its locks, or listens below it.

    One without a lock is nobody's that is known here, and stays.  ``meeting``: others may be
    about to find an owner for it.
    """
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        if not _is_private(folder):
            return
        if meeting:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # whoever had just made it makes it anew
        for name in (LOCK, OWNER) if meeting else (OWNER,):
            # An owner is found, and leaves its lock there, only under the other lock.
            descriptor = claim(folder, name, os.O_CREAT if name == OWNER and meeting else 0)
            if descriptor is None:
                return
            held.callback(os.close, descriptor)
        if not _listens(folder):
            empty(folder)


def empty(folder: Path) -> None:
    """Remove the folder; for whoever holds its lock, which goes last.

    Whoever is killed meanwhile leaves a folder that can still be told from a stranger's.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name not in (OWNER, LOCK):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
    for name in (OWNER, LOCK):
        with contextlib.suppress(OSError):
            os.unlink(folder / name)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _is_private(folder: Path) -> bool:
    """True if it is a folder, no link to one, and this user's alone."""
    found = os.lstat(folder)
    owner = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return stat.S_ISDIR(found.st_mode) and owner


def _listens(folder: Path) -> bool:
    """True if a living process has bound one of the sockets in the folder."""
    for entry in os.scandir(folder):
        if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) and _is_bound(entry.path):
            return True
    return False


def _is_bound(path: str) -> bool:
    # No socket of a job's is of this type, so that none is disturbed: the kernel refuses a
    # connection for want of an owner before it compares types.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except OSError as error:
            return error.errno != errno.ECONNREFUSED
    return True
