"""What a window of timings comes down to."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul

#: A timing is a stall beyond this many times its window's median, and this much above it.
STALL_FACTOR = 3.0
STALL_MS = 5.0
#: Share of the window whose largest timings the trimmed mean leaves out, one at least.
TRIMMED = 0.02


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


@dataclass(frozen=True)
class Summary:
    """A window of timings of one section on one rank, in milliseconds."""

    count: int
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
    #: Mean and its standard error without the largest timings: once is no habit.
    trimmed: float
    trimmed_error: float | None
    #: Timings far beyond the median, and what they took beyond it, the longest left out.
    stalls: int = 0
    stalled_ms: float = 0.0

    def statistics(self) -> dict[Statistic, float | None]:
        """The same under the names that reports use."""
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
    usual = ordered[: count - dropped] if dropped else ordered
    trimmed = sum(usual) / len(usual)
    trimmed_deviation = _deviation(usual, trimmed)
    limit = max(STALL_FACTOR * middle, middle + STALL_MS)
    stalled = [t - middle for t in ordered if t > limit] if ordered[-1] > limit else []
    return Summary(
        count=count,
        minimum=ordered[0],
        maximum=ordered[-1],
        median=middle,
        mean=total / count,
        deviation=_deviation(ordered, total / count),
        tail=percentile(ordered, 0.95),
        error=_median_error(ordered),
        trimmed=trimmed,
        trimmed_error=(
            None if trimmed_deviation is None else trimmed_deviation / math.sqrt(len(usual))
        ),
        stalls=len(stalled),
        stalled_ms=sum(stalled[:-1]),
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


def _deviation(timings: Sequence[float], mean: float) -> float | None:
    if len(timings) < 2:
        return None
    off = [t - mean for t in timings]
    return math.sqrt(sum(map(mul, off, off)) / (len(off) - 1))


def _median_error(ordered: Sequence[float]) -> float | None:
    """Of a normal sample the quartiles lie 1.349 deviations apart, and the median's error is
    1.2533 deviations over the root of the count."""
    if len(ordered) < 4:
        return None
    apart = percentile(ordered, 0.75) - percentile(ordered, 0.25)
    return 1.2533 * apart / 1.349 / math.sqrt(len(ordered))
