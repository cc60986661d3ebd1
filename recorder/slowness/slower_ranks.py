"""Ranks that are slower than others, again and again: by mean and tail as well as the median.

A difference counts if it is large enough to matter, in milliseconds and as a
share, and larger than what noise explains: that of the windows, or that between ranks
stretch by stretch.  Either way it must show all through the window.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hanglab.recorder.slowness.paired_stretches import Pairs, against, in_step, pair, stretch_ms
from hanglab.recorder.slowness.peers import Everybody, Middle
from hanglab.recorder.slowness.statistics import STRETCHES, Summary, median
from hanglab.recorder.slowness.thresholds import (
    CERTAIN,
    FEWEST_FOR_MEAN,
    FEWEST_FOR_MEDIAN,
    FLOOR_MS,
    RESOLUTION_MS,
    STALLED_SHARE,
    STALLING_PEERS,
    STALLS,
)

#: How slowness shows: most entries are slower, the sum of them is, or some of them stall.
SlownessKind = Literal["median", "mean", "stalls"]


@dataclass(frozen=True)
class Slowness:
    """Amount by which a rank is slower than its reference, per entry of the section."""

    kind: SlownessKind
    own_ms: float
    reference_ms: float
    #: In units of the noise of both; infinite where neither has any.
    certainty: float

    @property
    def excess_ms(self) -> float:
        return self.own_ms - self.reference_ms

    @property
    def factor(self) -> float:
        """Time over that of the reference; infinite over nothing."""
        return self.own_ms / self.reference_ms if self.reference_ms > 0 else math.inf


def slower_than(
    own: Summary,
    reference: Summary,
    factor: float,
    floor_ms: float = FLOOR_MS,
    *,
    at_once: bool = False,
) -> Slowness | None:
    """Slowness of the median against one reference: more than ``factor`` times as long.

    ``at_once`` says that both are of the same window of ranks that step together.
    None where it is not slower, or where too little is known to say so.
    """
    if min(own.count, reference.count) < FEWEST_FOR_MEDIAN:
        return None
    # One rank's short stretches are too noisy to be a reference.
    full = len(own.stretch_medians) == STRETCHES
    if at_once and full and in_step(own, [reference]):
        pairs = pair(own.stretch_medians, reference.stretch_medians, stretch_ms(own))
    else:
        pairs = against(own.stretch_medians, reference.median, stretch_ms(own))
    return _beyond(
        "median",
        own.median,
        reference.median,
        own.error,
        reference.error,
        pairs,
        factor,
        floor_ms,
    )


class RunQueue(NamedTuple):
    """Waits of a rank's thread for a processor in a window, and the time that it had one."""

    delay_ms: float
    #: None where it is not known.
    ran_ms: float | None = None

    def delay_within(self, ms: float, count: int) -> float:
        """Delay in an entry of a section that takes so long and is entered so often.

        A thread waits for a processor wherever it works: a section has its part of the delay, and
        never more than all of it.
        """
        if self.ran_ms is None:
            return self.delay_ms / count
        ready_ms = self.delay_ms + self.ran_ms
        return min(self.delay_ms / count, ms * self.delay_ms / ready_ms) if ready_ms else 0.0


def slow_without_delay(
    slowness: Slowness,
    count: int,
    own: RunQueue | None,
    peers: Collection[RunQueue],
    factor: float,
) -> bool:
    """True if a rank is still slow without what it waited for a processor beyond its peers.

    ``count`` are the entries of the section.  True where these waits are not known.
    """
    if own is None or not peers:
        return True
    usual = median(peer.delay_within(slowness.reference_ms, count) for peer in peers)
    delay = max(0.0, own.delay_within(slowness.own_ms, count) - usual)
    return slowness.own_ms - delay > factor * slowness.reference_ms


def slow_ranks(
    by_rank: Mapping[int, Summary],
    factor: float,
    floor_ms: float = FLOOR_MS,
    run_queues: Mapping[int, RunQueue] | None = None,
) -> dict[int, Slowness]:
    """The ranks that are slower than their peers' middle, with what shows it best.

    Compared with the median of all the others, so that one rank with less work
    does not make culprits of the rest, and several culprits are found as long as
    they are fewer than half.  ``run_queues`` tell how long ranks waited for a processor in
    the window, as far as known: on a crowded machine that is no doing of theirs.
    """
    if len(by_rank) < 2:
        return {}
    found: dict[int, Slowness] = {}
    run_queues = run_queues or {}
    everybody = Everybody(list(by_rank.values()))
    for rank, own in by_rank.items():
        slowness = (
            _slow_median(own, everybody, factor, floor_ms)
            or _slow_mean(own, everybody, factor, floor_ms)
            or _stalling(own, everybody, floor_ms)
        )
        if slowness is None:
            continue
        others = [queue for other, queue in run_queues.items() if other != rank]
        if slow_without_delay(slowness, own.count, run_queues.get(rank), others, factor):
            found[rank] = slowness
    return found


def _slow_median(
    own: Summary, everybody: Everybody, factor: float, floor_ms: float
) -> Slowness | None:
    if everybody.fewest < FEWEST_FOR_MEDIAN:
        return None
    return _beyond(
        "median",
        own.median,
        everybody.medians.without(own.median),
        own.error,
        everybody.errors.without(own.error),
        _pairs(own, own.stretch_medians, everybody, everybody.stretch_medians),
        factor,
        floor_ms,
    )


def _slow_mean(
    own: Summary, everybody: Everybody, factor: float, floor_ms: float
) -> Slowness | None:
    if everybody.fewest < FEWEST_FOR_MEAN:
        return None
    return _beyond(
        "mean",
        own.trimmed,
        everybody.trimmed.without(own.trimmed),
        own.trimmed_error,
        everybody.trimmed_errors.without(own.trimmed_error),
        # A mean of a few entries hangs on one of them: pairs of means prove nothing by themselves.
        _pairs(own, own.stretch_means, everybody, everybody.stretch_means, sure=False),
        factor,
        floor_ms,
    )


def _pairs(
    own: Summary,
    stretches: Sequence[float],
    everybody: Everybody,
    theirs: Sequence[Middle] | None,
    sure: bool = True,
) -> Pairs | None:
    """Against the middle of the peers in each stretch; None where ranks are not in step."""
    if theirs is None or not everybody.in_step_with(own):
        return None
    usual = [middle.without(mine) for middle, mine in zip(theirs, stretches, strict=True)]
    return pair(stretches, usual, stretch_ms(own), sure)


def _stalling(own: Summary, everybody: Everybody, floor_ms: float) -> Slowness | None:
    if own.stalls < STALLS:
        return None
    per_entry = own.stalled_ms / own.count
    theirs = everybody.stalled_ms.without(per_entry)
    most = everybody.most_stalls_beside(own, STALLING_PEERS)
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
    kind: SlownessKind,
    own: float,
    reference: float,
    own_error: float | None,
    reference_error: float | None,
    pairs: Pairs | None,
    factor: float,
    floor_ms: float,
) -> Slowness | None:
    if pairs is not None and not pairs.last(factor):
        return None
    found = []
    if own_error is not None and reference_error is not None:
        found.append(_slowness(kind, own, reference, math.hypot(own_error, reference_error)))
    if pairs is not None:
        # By the usual ratio of a stretch; its error bears on what the reference would take.
        level = own / max(pairs.usual, RESOLUTION_MS)
        found.append(_slowness(kind, own, level, level * pairs.error))
    sound = [
        slowness
        for slowness in found
        if slowness.excess_ms >= floor_ms
        and own > factor * slowness.reference_ms
        and slowness.certainty >= CERTAIN
    ]
    return max(sound, key=lambda slowness: slowness.certainty, default=None)


def _slowness(kind: SlownessKind, own: float, reference: float, noise: float) -> Slowness:
    excess = own - reference
    return Slowness(kind, own, reference, excess / noise if noise > 0 else math.inf)
