"""Telling a rank from the processes around it that see the same environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: Modules and commands that start ranks and may themselves stand in a job's environment.
_LAUNCHERS = (
    "torchrun",
    "accelerate",
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "torch.distributed.elastic",
    # Whoever records or captures may have been started within a job's environment, too.
    "hanglab",
    "hanglab.harness.cli",
    "hanglab.recorder.agent",
)
#: How often torchrun has started its ranks anew, and Slurm the whole job.
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def may_join(environment: Mapping[str, str]) -> bool:
    """True if this process is to be watched in case it turns out to be a rank.

    Any but what a rank started.
    """
    owner = environment.get("HANGLAB_RANK_PID", str(os.getpid()))
    return bool(environment.get("HANGLAB_CASE")) and owner == str(os.getpid())


def is_rank(environment: Mapping[str, str]) -> bool:
    """True if this process is a rank that is to be recorded, by its environment alone.

    Not a launcher, not a helper of multiprocessing, and not a process that a
    rank started and that inherited its ``RANK``.
    """
    if not environment.get("HANGLAB_CASE") or not environment.get("RANK", "").isdecimal():
        return False
    if environment.get("HANGLAB_RANK_PID", str(os.getpid())) != str(os.getpid()):
        return False
    words = sys.orig_argv
    if "--multiprocessing-fork" in words or any("multiprocessing." in w for w in words[:4]):
        return False
    return not is_launcher(words)


def attempt_of(environment: Mapping[str, str]) -> int:
    """Number of times that the job's ranks were begun anew before this process."""
    counts = (environment.get(name, "") for name in _RESTARTS)
    return sum(int(count) for count in counts if count.isdecimal())


def is_launcher(words: list[str]) -> bool:
    """True if a Python command line starts ranks instead of being one."""
    for place, word in enumerate(words[1:], 1):
        if word == "-m":
            return words[place + 1 : place + 2] != [] and words[place + 1] in _LAUNCHERS
        if not word.startswith("-"):
            return os.path.basename(word) in _LAUNCHERS
    return False
