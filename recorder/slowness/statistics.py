"""Summaries of a window of timings, and the medians that ranks are compared by."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from hanglab.recorder.slowness.thresholds import STALL_FACTOR, STALL_MS, STALLS_APART

#: Share of the window whose largest timings the trimmed mean leaves out, one at least.
TRIMMED = 0.02
#: Stretches that a window is cut into, and the fewest: of so many entries each, or more.
STRETCHES, FEWEST_STRETCHES = 10, 5
SHORTEST_STRETCH = 4


class Statistic(enum.Enum):
    """Keys of the summaries in a report; ``TAIL`` is the 95th percentile."""

    MIN = enum.auto()
    MAX = enum.auto()
    MED = enum.auto()
    AVG = enum.auto()
    STD = enum.auto()
    NUM = enum.auto()
    TAIL = enum.auto()

    def __str__(self) -> str:
        return self.name

    __repr__ = enum.Enum.__str__
    # Each is there once.  A report looks thousands of them up; an Enum's own hash is Python.
    __hash__ = object.__hash__


class Summary(NamedTuple):
    """A window of timings of one section on one rank, in milliseconds."""

    count: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs
    minimum: float
    maximum: float
    median: float
    mean: float
    #: Standard deviation of the sample; None of a single timing.
    deviation: float | None
    #: 95th percentile.
    tail: float
    #: Standard error of the median, from the distance between the quartiles, which a few
    #: outliers do not move; None below four timings.
    error: float | None
    #: Mean and its standard error without the largest timings: once is not again and again.
    trimmed: float
    trimmed_error: float | None
    #: Timings far beyond the median, those of a cluster counted once, and what all of them took
    #: beyond it, the longest left out.
    stalls: int = 0
    stalled_ms: float = 0.0
    #: Medians and means of consecutive stretches of the window; empty of few timings.
    stretch_medians: tuple[float, ...] = ()
    stretch_means: tuple[float, ...] = ()

    def statistics(self) -> dict[Statistic, float | None]:
        """Figures under the names that reports use."""
        return {
            Statistic.MIN: self.minimum,
            Statistic.MAX: self.maximum,
            Statistic.MED: self.median,
            Statistic.AVG: self.mean,
            Statistic.STD: self.deviation,
            Statistic.NUM: self.count,
            Statistic.TAIL: self.tail,
        }


def summarize(timings: Sequence[float]) -> Summary | None:
    """Summary of timings in milliseconds; None of none.

    What is negative or not finite is left out: such a timing is no time.
    """
    ordered = sorted(timings)
    if not ordered:
        return None
    total = sum(ordered)
    if ordered[0] < 0.0 or not math.isfinite(total):
        return summarize([t for t in timings if 0.0 <= t < math.inf])
    count = len(ordered)
    middle = percentile(ordered, 0.5)
    dropped = max(1, round(TRIMMED * count)) if count > 1 else 0
    # Sums of differences from the median, the largest apart: a report sums up every
    # section of the job, so each timing is looked at as seldom as possible.
    off = [t - middle for t in ordered]
    usual, largest = off[: count - dropped], off[count - dropped :]
    usual_sum, usual_squares = sum(usual), sum(map(mul, usual, usual))
    trimmed_deviation = _deviation(len(usual), usual_sum, usual_squares)
    limit = max(STALL_FACTOR * middle, middle + STALL_MS)
    stalled = [t - middle for t in ordered if t > limit] if ordered[-1] > limit else []
    medians, means = _stretches(timings)
    return Summary(
        count=count,
        minimum=ordered[0],
        maximum=ordered[-1],
        median=middle,
        mean=total / count,
        deviation=_deviation(
            count, usual_sum + sum(largest), usual_squares + sum(map(mul, largest, largest))
        ),
        tail=percentile(ordered, 0.95),
        error=median_error(ordered),
        trimmed=middle + usual_sum / len(usual),
        trimmed_error=(
            None if trimmed_deviation is None else trimmed_deviation / math.sqrt(len(usual))
        ),
        stalls=clusters(timings, limit) if stalled else 0,
        stalled_ms=sum(stalled[:-1]),
        stretch_medians=medians,
        stretch_means=means,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Value below which ``share`` of the sorted timings lie, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low = ordered[below]
    return low + (ordered[above] - low) * (place - below)


def median(values: Iterable[float]) -> float:
    """Middle value, or the mean of the two.  The standard module's takes 25 ms to import."""
    return percentile(sorted(values), 0.5)


def beyond_peers(by_rank: Mapping[int, float], rank: int) -> float:
    """Amount by which the rank's value exceeds the median of the others'."""
    peers = [value for peer, value in by_rank.items() if peer != rank]
    return by_rank[rank] - median(peers) if peers else 0.0


def median_error(ordered: Sequence[float]) -> float | None:
    """Standard error of the median of sorted values; None below four.

    Of a normal sample the quartiles lie 1.349 deviations apart, and the median's error is
    1.2533 deviations over the root of the count.
    """
    if len(ordered) < 4:
        return None
    apart = percentile(ordered, 0.75) - percentile(ordered, 0.25)
    return 1.2533 * apart / 1.349 / math.sqrt(len(ordered))


def _deviation(count: int, total: float, squares: float) -> float | None:
    """Deviation of a sample, from the sums of its values and of their squares."""
    if count < 2:
        return None
    return math.sqrt(max(0.0, squares - total * total / count) / (count - 1))


def clusters(timings: Sequence[float], limit: float) -> int:
    """Number of timings beyond the limit, those that follow one closely left out."""
    found, free = 0, 0
    for place, timing in enumerate(timings):
        if timing > limit and place >= free:
            found, free = found + 1, place + STALLS_APART
    return found


def _stretches(timings: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Medians and means of consecutive stretches; none of few timings."""
    stretches = [sorted(timings[cut]) for cut in cuts(len(timings))]
    return (
        tuple([stretch[len(stretch) >> 1] for stretch in stretches]),
        tuple([sum(stretch) / len(stretch) for stretch in stretches]),
    )


@functools.lru_cache(maxsize=64)
def cuts(count: int) -> tuple[slice, ...]:
    """Slices that cut a window of so many timings into stretches of one length, nearly."""
    number = min(STRETCHES, count // SHORTEST_STRETCH)
    if number < FEWEST_STRETCHES:
        return ()
    return tuple(slice(count * n // number, count * (n + 1) // number) for n in range(number))
