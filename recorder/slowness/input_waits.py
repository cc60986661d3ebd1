"""Waiting for input, judged by itself before any rank is compared with another.

Ranks whose loaders are all too slow wait in turns: whichever is behind keeps the
others in the next collective, so relative scores of the wait accuse an arbitrary
subset.  What tells a slow loader is how busy it is, not how long its rank waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.recorder.slowness.statistics import median
from hanglab.recorder.slowness.thresholds import INPUT_SHARE, LOADER_FACTOR, SATURATED


@dataclass(frozen=True)
class InputWait:
    """One rank's window: share of it spent waiting for input, and how busy its loader was.

    ``busy`` is None where no worker processes do the loading, or their time is
    not known; then the wait itself is the work.  Near 1 the loader makes no batch sooner
    than the rank takes it, whoever waits for whom.
    """

    share: float
    busy: float | None = None

    @property
    def saturated(self) -> bool:
        return self.busy is not None and self.busy >= SATURATED


@dataclass(frozen=True)
class Starvation:
    """Part of the window that the job lost to its input, and by whose loader.

    ``everybody`` is True where all ranks are starved alike: none is to blame more
    than the others.  ``slow`` are the ranks whose own loader is behind.  Neither:
    whose it is cannot be told.
    """

    share: float
    everybody: bool = False
    slow: tuple[int, ...] = ()


def judge_input(by_rank: Mapping[int, InputWait]) -> Starvation | None:
    """Starvation of a job by its ranks' waits; None where input costs it little."""
    # A rank whose workers are saturated waits while the others wait for it elsewhere: such
    # waits come in turns and add up.  All the rest happens on all ranks at once.
    in_turns = sum(w.share for w in by_rank.values() if w.saturated)
    at_once = max((w.share for w in by_rank.values() if not w.saturated), default=0.0)
    lost = min(1.0, in_turns + at_once)
    if lost < INPUT_SHARE:
        return None
    behind = [
        rank
        for rank, wait in by_rank.items()
        if wait.saturated or (wait.busy is None and wait.share >= INPUT_SHARE)
    ]
    if len(behind) == len(by_rank) and len(by_rank) > 1:
        slow = _beyond_peers(by_rank)
        return Starvation(lost, everybody=not slow, slow=slow)
    return Starvation(lost, slow=tuple(r for r in behind if by_rank[r].share >= INPUT_SHARE))


def _beyond_peers(by_rank: Mapping[int, InputWait]) -> tuple[int, ...]:
    """Ranks that take much longer to load than their peers, where all load in their own process."""
    if any(wait.busy is not None for wait in by_rank.values()):
        return ()
    return tuple(
        rank
        for rank, wait in by_rank.items()
        if wait.share >= LOADER_FACTOR * median(w.share for r, w in by_rank.items() if r != rank)
    )
