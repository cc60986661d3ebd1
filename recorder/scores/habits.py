"""Whether a rank is slower than others, by habit: mean and tail as well as the median.

A difference counts if it is large enough to matter, in milliseconds and as a
share, and larger than what the window's own noise explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hanglab.recorder.scores.statistics import Summary

#: What shows a habit: most entries are slower, the sum of them is, or some of them stall.
Habit = Literal["median", "mean", "stalls"]

#: A difference below this many milliseconds an entry is never held against a rank.
FLOOR_MS = 1.0
#: How many times the noise a difference must be.
CERTAIN = 4.0
#: Fewer entries than these say nothing about the median, and about the mean.
FEWEST = 5
FEWEST_FOR_MEAN = 20
#: Stalls: so many, and as many again for each of the three peers that have most; and so
#: much of the time.  They come in clusters, so that their number alone is a poor guide.
STALLS = 4
STALLING_PEERS = 3
STALLED_SHARE = 0.2


@dataclass(frozen=True)
class Slowness:
    """How much slower a rank is than its reference, per entry of the section."""

    habit: Habit
    own_ms: float
    reference_ms: float
    #: In units of the noise of both; infinite where neither has any.
    certainty: float

    @property
    def excess_ms(self) -> float:
        return self.own_ms - self.reference_ms

    @property
    def factor(self) -> float:
        """How many times as long as the reference; infinite over nothing."""
        return self.own_ms / self.reference_ms if self.reference_ms > 0 else math.inf


def slower_than(
    own: Summary, reference: Summary, factor: float, floor_ms: float = FLOOR_MS
) -> Slowness | None:
    """Slowness of the median against one reference: more than ``factor`` times as long.

    None where it is not, or where too little is known to say so.
    """
    if min(own.count, reference.count) < FEWEST:
        return None
    return _beyond(
        "median", own.median, reference.median, own.error, reference.error, factor, floor_ms
    )


def habits(
    by_rank: Mapping[int, Summary], factor: float, floor_ms: float = FLOOR_MS
) -> dict[int, Slowness]:
    """The ranks that are slower than their peers' middle, with what shows it best.

    Compared with the median of all the others, so that one rank with less work
    does not make culprits of the rest, and several culprits are found as long as
    they are fewer than half.
    """
    found: dict[int, Slowness] = {}
    for rank, own in by_rank.items():
        peers = [summary for other, summary in by_rank.items() if other != rank]
        if not peers:
            continue
        slowness = (
            _slow_median(own, peers, factor, floor_ms)
            or _slow_mean(own, peers, factor, floor_ms)
            or _stalling(own, peers, floor_ms)
        )
        if slowness is not None:
            found[rank] = slowness
    return found


def _slow_median(
    own: Summary, peers: list[Summary], factor: float, floor_ms: float
) -> Slowness | None:
    if min(own.count, *(peer.count for peer in peers)) < FEWEST:
        return None
    usual = _middle([peer.median for peer in peers])
    error = _middle(_known([peer.error for peer in peers]))
    return _beyond("median", own.median, usual, own.error, error, factor, floor_ms)


def _slow_mean(
    own: Summary, peers: list[Summary], factor: float, floor_ms: float
) -> Slowness | None:
    if min(own.count, *(peer.count for peer in peers)) < FEWEST_FOR_MEAN:
        return None
    usual = _middle([peer.trimmed for peer in peers])
    error = _middle(_known([peer.trimmed_error for peer in peers]))
    return _beyond("mean", own.trimmed, usual, own.trimmed_error, error, factor, floor_ms)


def _stalling(own: Summary, peers: list[Summary], floor_ms: float) -> Slowness | None:
    per_entry = own.stalled_ms / own.count
    theirs = _middle([peer.stalled_ms / peer.count for peer in peers])
    most = sorted(peer.stalls * own.count / peer.count for peer in peers)[-STALLING_PEERS:]
    if (
        own.stalls < STALLS * (1 + sum(most))
        or per_entry - theirs < floor_ms
        or per_entry < STALLED_SHARE * own.mean
    ):
        return None
    usual = sum(most) / len(most)
    # Stalls come by chance: a count of them is as noisy as its root.
    certainty = (own.stalls - usual) / math.sqrt(own.stalls + usual)
    return Slowness("stalls", own.mean, own.mean - per_entry + theirs, certainty)


def _beyond(
    habit: Habit,
    own: float,
    reference: float,
    own_error: float | None,
    reference_error: float | None,
    factor: float,
    floor_ms: float,
) -> Slowness | None:
    if own_error is None or reference_error is None:
        return None
    noise = math.hypot(own_error, reference_error)
    excess = own - reference
    certainty = excess / noise if noise > 0 else math.inf
    if excess < floor_ms or own <= factor * reference or certainty < CERTAIN:
        return None
    return Slowness(habit, own, reference, certainty)


def _middle(values: list[float]) -> float:
    """The middle value, of two the greater: in doubt nobody is slow."""
    return sorted(values)[len(values) // 2]


def _known(errors: list[float | None]) -> list[float]:
    return [error for error in errors if error is not None] or [0.0]
