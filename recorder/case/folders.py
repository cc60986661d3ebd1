"""Folders of a Case, and its files written so that only their owner can read them.

Standard library only: the part that runs inside ranks uses this.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final

MANIFEST: Final = "manifest.json"
HOSTS: Final = "hosts"
RANKS: Final = "ranks"

#: Bytes of a rank's stderr that are kept, from its end.
STDERR_BYTES: Final = 64 * 1024

#: Files that could not be used, and why.
Problems = list[tuple[Path, str]]


def host_folder(case: Path | str, host: str) -> Path:
    """Folder of a host; characters that a folder name cannot bear become underscores."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", host).lstrip(".") or "host"
    return Path(case) / HOSTS / name[:200]


def rank_folder(case: Path | str, host: str, rank: int, attempt: int = 0) -> Path:
    return host_folder(case, host) / RANKS / f"{rank}.{attempt}"


def parse_rank_folder(name: str) -> tuple[int, int] | None:
    """(rank, attempt) of a rank folder's name; None if it is none."""
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", name)
    return (int(match[1]), int(match[2])) if match else None


def make_private(folder: Path) -> Path:
    """Create a folder and its missing parents, each with mode 0700."""
    missing = []
    at = folder
    while not at.is_dir():
        missing.append(at)
        if at.parent == at:
            break
        at = at.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    return folder


def claim(case: Path) -> None:
    """Make an empty folder the Case of one recording.

    Of two that try at once one gets FileExistsError.  Raises OSError.
    """
    os.mkdir(case / HOSTS, 0o700)


def open_private(path: Path | str, flags: int) -> int:
    """os.open with mode 0600, whatever the umask adds to it; never through a link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


#: Bytes that a file system gives room to at once.
_BLOCK = 4096


def write_whole(path: Path, data: bytes, *, sparse: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Where ``sparse``, blocks of zeros take no room.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(fd, "wb") as file:
            if sparse:
                _write_sparse(file, data)
            else:
                file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_sparse(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    zeros = bytes(_BLOCK)
    for start in range(0, len(data), _BLOCK):
        block = view[start : start + _BLOCK]
        if block != zeros[: len(block)]:
            file.seek(start)
            file.write(block)
    file.truncate(len(data))


def append_line(path: Path, data: bytes) -> None:
    """Add one line with a single write, so that lines of several threads do not mix."""
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, data + b"\n")
    finally:
        os.close(fd)


def read_regular(path: Path, limit: int, problems: Problems) -> bytes | None:
    """Content of a regular file; None, and a problem unless it is merely absent."""
    try:
        # A FIFO would block, a link could lead out of the Case.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append((path, f"cannot be opened: {error.strerror}"))
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        # fdopen() would refuse a folder, and leave it open.
        os.close(fd)
        problems.append((path, "is not a regular file"))
        return None
    try:
        with os.fdopen(fd, "rb") as file:
            if status.st_size > limit:
                problems.append((path, f"has {status.st_size} bytes, more than {limit}"))
                return None
            # Room is made for as much as is asked for, so not for as much as is allowed.
            return file.read(status.st_size)
    except OSError as error:
        problems.append((path, f"cannot be read: {error.strerror}"))
        return None
