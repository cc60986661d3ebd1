"""Locks of files that processes wait for, and who holds them: /proc/locks and /proc/PID/fdinfo.

See proc_locks(5) and proc_pid_fdinfo(5).  No file is touched: one on a dead server would keep
the reader for ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

#: major:minor:inode of a file, as /proc/locks writes it.
FileId = str


class WantedLock(NamedTuple):
    """A lock that a process waits for.  ``kind`` is FLOCK, POSIX or LEASE."""

    pid: int
    kind: str
    file: FileId


def wanted_locks() -> list[WantedLock]:
    """Locks that are waited for; none where the kernel does not tell."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    return [wanted for line in lines if (wanted := _wanted(line)) is not None]


def _wanted(line: str) -> WantedLock | None:
    """A line such as ``2: -> FLOCK  ADVISORY  WRITE 17 08:01:5 0 EOF``."""
    words = line.split()
    if len(words) < 8 or words[1] != "->" or not words[5].isdecimal():
        return None
    return WantedLock(int(words[5]), words[2], words[6])


def holder_of(lock: WantedLock, processes: Iterable[int]) -> tuple[int, str] | None:
    """Process that has the file open under a lock, and its path; None if none of them has.

    A lock is held through an open file, which children inherit: the process that took it may
    be another, or have ended.
    """
    for pid in processes:
        if pid == lock.pid:
            continue
        for number, kind, file in _held(pid):
            if (kind, file) == (lock.kind, lock.file):
                with contextlib.suppress(OSError):
                    return pid, os.readlink(f"/proc/{pid}/fd/{number}")
    return None


def _held(pid: int) -> Iterator[tuple[str, str, FileId]]:
    """Number, kind of lock and file of each open file of a process with a lock."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fdinfo"):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/fdinfo/{number}").read_text().splitlines():
                    words = line.split()
                    if len(words) >= 7 and words[0] == "lock:":
                        yield number, words[2], words[6]
