"""Waiting for input, judged by itself before any rank is compared with another.

Ranks whose loaders are all too slow wait in turns: whichever is behind keeps the
others in the next collective, so relative scores of the wait accuse an arbitrary
subset.  What tells a slow loader is how busy it is, not how long its rank waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.recorder.slowness.statistics import median

#: Share of the time spent waiting for input that makes a job input-bound.
STARVED = 0.15
#: A loader that is busy for this share of the time cannot make batches any faster.
SATURATED = 0.85
#: A rank that loads in its own process is slow if it takes this many times as long as its peers.
SLOWER = 1.5


@dataclass(frozen=True)
class InputWait:
    """One rank's window: share of it spent waiting for input, and how busy its loader was.

    ``busy`` is None where no worker processes do the loading, or their time is
    not known; then the wait itself is the work.
    """

    share: float
    busy: float | None = None


@dataclass(frozen=True)
class Starvation:
    """What part of the window the job lost to its input, and by whose loader.

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
    in_turns = sum(w.share for w in by_rank.values() if _saturated(w))
    at_once = max((w.share for w in by_rank.values() if not _saturated(w)), default=0.0)
    lost = min(1.0, in_turns + at_once)
    if lost < STARVED:
        return None
    behind = [
        rank
        for rank, wait in by_rank.items()
        if _saturated(wait) or (wait.busy is None and wait.share >= STARVED)
    ]
    if len(behind) == len(by_rank) and len(by_rank) > 1:
        slow = _beyond_peers(by_rank)
        return Starvation(lost, everybody=not slow, slow=slow)
    return Starvation(lost, slow=tuple(r for r in behind if by_rank[r].share >= STARVED))


def _saturated(wait: InputWait) -> bool:
    return wait.busy is not None and wait.busy >= SATURATED


def _beyond_peers(by_rank: Mapping[int, InputWait]) -> tuple[int, ...]:
    """Of ranks that all load in their own process, those that take much longer at it."""
    if any(wait.busy is not None for wait in by_rank.values()):
        return ()
    return tuple(
        rank
        for rank, wait in by_rank.items()
        if wait.share >= SLOWER * median(w.share for r, w in by_rank.items() if r != rank)
    )
