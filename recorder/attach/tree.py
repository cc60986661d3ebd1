"""Ranks among processes, told by what the kernel shows of them.

A rank that the start-up hook did not reach (``python -I``, a PYTHONPATH that was
reset, a job that nobody records) still has its launcher's variables in
``/proc/PID/environ``.  Ranks of ``torch.multiprocessing.spawn`` have none; there the
number stands in a frame of torch's own on their stack.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from hanglab.recorder.rank.group_joining import RANK_NAMES
from hanglab.recorder.rank.rank_recognition import attempt_of, is_launcher
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import NoStacks, spawn_number

_PYTHON = re.compile(r"python[\d.]*")


class FoundRank(NamedTuple):
    """A process that is a rank, by its environment or by its stack."""

    pid: int
    rank: int
    world_size: int | None
    local_rank: int | None
    attempt: int
    #: What the recorder's variables say, "" where nobody records it.
    case: str
    runtime: str


def find_ranks(
    pids: Iterable[int], known: Collection[int] = (), spawned: bool = False
) -> list[FoundRank]:
    """Ranks among ``pids``, each without the processes below it.

    ``pids`` come parents before children; ``known`` are ranks already.
    ``spawned``: look at the stacks of processes without a rank in their
    environment, which takes a fifth of a second each.
    """
    found: dict[int, FoundRank] = {}
    below: set[int] = set()
    undecided: list[int] = []
    for pid in pids:
        stat = procfs.stat(pid)
        if stat is None or stat.state in "ZX":
            continue
        if pid in known or stat.ppid in found or stat.ppid in below:
            below.add(pid)
            continue
        if not is_python(pid) or is_launcher(procfs.command_line(pid)):
            continue
        rank = by_environment(pid)
        if rank is not None:
            found[pid] = rank
        elif spawned and has_torch(pid):
            undecided.append(pid)
    for pid in undecided:
        with contextlib.suppress(NoStacks):
            if (rank := by_stack(pid)) is not None:
                found[pid] = rank
    return list(found.values())


def by_environment(pid: int) -> FoundRank | None:
    environment = procfs.environment(pid)
    for rank, size in RANK_NAMES:
        if environment.get(rank, "").isdecimal():
            return FoundRank(
                pid,
                int(environment[rank]),
                _number(environment.get(size)),
                _number(environment.get("LOCAL_RANK")),
                attempt_of(environment),
                environment.get("HANGLAB_CASE", ""),
                environment.get("HANGLAB_RUNTIME", ""),
            )
    return None


def by_stack(pid: int) -> FoundRank | None:
    """The rank that a process of ``torch.multiprocessing.spawn`` is.  Raises NoStacks."""
    number = spawn_number(pid)
    if number is None:
        return None
    environment = procfs.environment(pid)
    case, runtime = environment.get("HANGLAB_CASE", ""), environment.get("HANGLAB_RUNTIME", "")
    return FoundRank(pid, number, None, number, 0, case, runtime)


def is_python(pid: int) -> bool:
    """True if the process runs an interpreter, by its executable's name or by its library."""
    if _PYTHON.fullmatch(os.path.basename(procfs.executable(pid))):
        return True
    words = procfs.command_line(pid)
    return bool(words) and bool(_PYTHON.fullmatch(os.path.basename(words[0])))


def has_torch(pid: int) -> bool:
    """True if torch's library is mapped into the process."""
    return any("/libtorch" in path for path in procfs.mapped_files(pid))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
