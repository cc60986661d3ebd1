"""An agent that nobody drives: when it is over, and what it says to people."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.system import procfs

#: Seconds without a living rank after which the job is over; while its launcher lives it
#: may start them anew.
_AFTER_LAST = 1.0
_FOR_RESTART = 10.0
#: Seconds in which a first rank must have registered.
_FOR_FIRST = 600.0


class StandaloneAgent:
    """``parent`` is the process that started the ranks."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        stat = procfs.stat(parent)
        self._parent_started = stat.started if stat is not None else None
        self._since = time.monotonic()

    def over(self, ranks: list[WatchedRank], alive: list[WatchedRank]) -> bool:
        """True if there is nothing left to watch.  To be asked often."""
        now = time.monotonic()
        if alive:
            self._since = now
            return False
        past = now - self._since
        if not self._parent_lives():
            return past > _AFTER_LAST
        return past > (_FOR_RESTART if ranks else _FOR_FIRST)

    def _parent_lives(self) -> bool:
        stat = procfs.stat(self._parent)
        return stat is not None and stat.state not in "ZX" and stat.started == self._parent_started

    def say(self, text: str, case: Path) -> None:
        """Print on the standard error that the agent has from the rank that started it."""
        with contextlib.suppress(OSError, ValueError):
            print(f"hanglab: {text}: `hanglab analyze {case}`", file=sys.stderr, flush=True)
