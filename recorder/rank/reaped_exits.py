"""Ends of processes, told by the Python program that started them.

A launcher collects its ranks' exit statuses, and then nobody else can ask the
kernel for them.  Here each status that passes through ``os.waitpid`` is written
down on its way.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from hanglab.recorder.case import folders
from hanglab.recorder.rank.error_guard import GUARD

#: In the runtime folder; a line is a process id and a status as waitpid gives it.
NAME = "exits.txt"


def note_exits(runtime: Path) -> None:
    """Wrap ``os.waitpid``; the wrapper gives what the original gives, or raises the same."""
    path = runtime / NAME
    original = os.waitpid
    owner = os.getpid()

    @functools.wraps(original)
    def waitpid(pid: int, options: int, /) -> tuple[int, int]:
        result = original(pid, options)
        ended, status = result
        if ended > 0 and not os.WIFSTOPPED(status) and os.getpid() == owner:
            with GUARD:
                note_exit(path, ended, status)
        return result

    os.waitpid = waitpid


def note_exit(path: Path, pid: int, status: int) -> None:
    """Raises OSError."""
    folders.append_line(path, b"%d %d" % (pid, status))


def read_exits(path: Path, start: int) -> tuple[dict[int, int], int]:
    """Statuses by process id, from byte ``start`` on, and where to go on next time."""
    found = {}
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                break
            start += len(line)
            words = line.split()
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
                found[int(words[0])] = int(words[1])
    return found, start
