"""Ranks that are none of the command's descendants: a service starts them for it, as Slurm's does.

To end all that is below hanglab does not reach them, and of their launcher it leaves
nobody who would tell the service that the job is over.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from hanglab.recorder.system import procfs


def ranks_away(case: Path, pids: Iterable[int]) -> list[int]:
    """Ranks that run outside of what is below this process.

    ``pids`` are all ranks that have registered in ``case``; an id may be another's by now.
    """
    mine = os.getpid()
    below = set(procfs.descendants([mine])[mine])
    found = []
    for pid in pids:
        stat = procfs.stat(pid)
        if pid in below or stat is None or stat.state in "ZX":
            continue
        named = procfs.environment(pid).get("HANGLAB_CASE", "")
        if named and os.path.realpath(named) == os.path.realpath(case):
            found.append(pid)
    return found


def kill_away(pids: Iterable[int]) -> None:
    """Kill ranks and what is below them."""
    for pid, below in procfs.descendants(list(pids)).items():
        for one in (pid, *below):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
