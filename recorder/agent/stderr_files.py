"""Files of standard error: a rank's own, or one of several ranks together.

Ranks of a launcher whose output goes to a file all write into it.  What stands there
must not be taken for each one's own word.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hanglab.recorder.agent.watched_rank import WatchedRank


class FileIdentity(NamedTuple):
    """Tells a regular file from all others of this host."""

    device: int
    inode: int


def stderr_file(pid: int) -> FileIdentity | None:
    """The file that a process's standard error goes to.

    None for a terminal or a pipe, which belong to somebody else, and where the process
    has gone or is not ours to look into.
    """
    with contextlib.suppress(OSError):
        status = os.stat(stderr_path(pid))
        if stat.S_ISREG(status.st_mode):
            return FileIdentity(status.st_dev, status.st_ino)
    return None


def stderr_path(pid: int) -> Path:
    return Path(f"/proc/{pid}/fd/2")


def kept_path(pid: int) -> Path | None:
    """The place of the file that a process's standard error goes to, to read it when it has gone.

    None where that cannot be told.
    """
    try:
        return Path(os.readlink(stderr_path(pid)))
    except OSError:
        return None


def is_at(file: FileIdentity, path: Path) -> bool:
    """True if that very file still lies there."""
    try:
        status = path.stat()
    except OSError:
        return False
    return file == (status.st_dev, status.st_ino)


def shared_files(ranks: Iterable[WatchedRank]) -> set[FileIdentity]:
    """Files that the standard error of more than one rank goes to, or went to."""
    writers: dict[FileIdentity, set[int]] = {}
    for rank in ranks:
        for file in {rank.stderr, stderr_file(rank.pid) if rank.stat() is not None else None}:
            if file is not None:
                writers.setdefault(file, set()).add(rank.rank)
    return {file for file, who in writers.items() if len(who) > 1}
