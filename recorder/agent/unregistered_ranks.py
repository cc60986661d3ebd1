"""Ranks below the recorded command that did not register: they are attached to from outside."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.attach.registration import process_age, register
from hanglab.recorder.attach.tree import FoundRank, find_ranks
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.rank import OWNER
from hanglab.recorder.system import procfs

if TYPE_CHECKING:
    from hanglab.recorder.agent.capture import Capture
    from hanglab.recorder.agent.progress_watch import Watcher

#: Seconds between two searches, and between those before the first operation or while some
#: rank starts up: shorter than any pause that could be taken for a hang.
_EVERY = 2.0
_EVERY_BEFORE = 0.4
#: The age at which a process that is to register has.  Before it every rank starts up:
#: that is movement, although nothing of it can be seen.
_GROWN_UP = 6.0

ESCAPED = (
    "the start-up hook did not reach it (python -I or -E, or a PYTHONPATH that was reset): it was "
    "attached to from outside, without progress and buffers"
)
UNRECORDED = "nobody recorded the rank: it was attached to from outside, while it ran"


class UnregisteredRanks:
    """Searches the tree below ``root`` now and then."""

    def __init__(self, case: Path, host: str, root: int, capture: Capture) -> None:
        self._case = case
        self._host = host
        self._root = root
        self._capture = capture
        self._last = 0.0
        self._some_start = False
        self._refused: set[int] = set()

    def look(self, watcher: Watcher) -> list[WatchedRank]:
        """New ones, already given to the watcher.  It is told, too, of those that start up."""
        now = time.monotonic()
        seldom = watcher.begun and not self._some_start
        if now - self._last < (_EVERY if seldom else _EVERY_BEFORE):
            return []
        self._last = now
        self._some_start = False
        below = procfs.descendants([self._root])[self._root]
        mine = os.getpid()
        known = {rank.pid for rank in watcher.ranks} | {mine}
        new = []
        for found in find_ranks(below, known):
            if found.pid in self._refused:
                continue
            if _is_helper(found, watcher):
                # For ever: when its rank has ended it is none either.
                self._refused.add(found.pid)
                continue
            if (process_age(found.pid) or 0.0) < _GROWN_UP:
                watcher.forget_rest()
                self._some_start = True
                continue
            rank = self._register(found)
            if rank is not None:
                watcher.adopt(rank)
                new.append(rank)
        return new

    def _register(self, found: FoundRank) -> WatchedRank | None:
        try:
            rank = WatchedRank(*register(self._case, self._host, found), outside=True)
        except OSError as error:
            self._refused.add(found.pid)
            self._capture.miss("rank", f"{ESCAPED}; {error.strerror}", found.rank)
            return None
        if not (rank.folder / files.PROGRESS.name).exists():
            self._capture.miss(files.PROGRESS.name, ESCAPED, found.rank)
        return rank


def _is_helper(found: FoundRank, watcher: Watcher) -> bool:
    """True if the process only has a rank's variables from it.

    One that has detached is no process below the rank any more.
    """
    if procfs.environment(found.pid).get(OWNER, str(found.pid)) != str(found.pid):
        return True
    for rank in watcher.ranks:
        if rank.rank == found.rank and rank.attempt >= found.attempt:
            stat = rank.stat()
            if stat is not None and stat.state not in "ZX":
                return True
    return False
