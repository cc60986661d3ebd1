"""Ranks that step together, compared stretch by stretch: what slows all of them cancels.

The speed of a machine drifts.  Over a whole window that drift is noise, which hides a
slow rank; within a stretch it is the same for everybody.  And what shows in some
stretches alone, such as a processor shared for a while, is not the rank's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hanglab.recorder.slowness.statistics import STRETCHES, Summary, median_error, percentile
from hanglab.recorder.slowness.thresholds import (
    EXCEPTIONS,
    FEW_EXCEPTIONS,
    IN_STEP_FACTOR,
    LASTING_MS,
    RESOLUTION_MS,
)


@dataclass(frozen=True)
class Pairs:
    """One rank's time over its reference's in each stretch, in ascending order."""

    ratios: Sequence[float]
    #: Their spread is that of the ranks' difference: both are of the same moments, so that
    #: what drifts cancels, and each stands for its stretch.
    sure: bool
    #: Milliseconds that the rank worked in a stretch.
    stretch_ms: float

    @property
    def usual(self) -> float:
        """The middle ratio."""
        return percentile(self.ratios, 0.5)

    @property
    def error(self) -> float:
        """Standard error of the usual ratio; infinite where the pairs do not tell."""
        if not self.sure or len(self.ratios) < STRETCHES:
            return math.inf
        return median_error(self.ratios) or 0.0

    def last(self, factor: float) -> bool:
        """True if at least half of what ``factor`` asks for shows all through the window."""
        exceptions = EXCEPTIONS if len(self.ratios) >= STRETCHES else FEW_EXCEPTIONS
        showing = sum(ratio > (1 + factor) / 2 for ratio in self.ratios)
        return showing >= len(self.ratios) - exceptions or showing * self.stretch_ms >= LASTING_MS


def pair(
    own: Sequence[float], reference: Sequence[float], stretch_ms: float, sure: bool = True
) -> Pairs | None:
    """Pairs of the stretches of ranks that step together; None where there are none."""
    if not own or len(own) != len(reference):
        return None
    return Pairs(sorted(map(_ratio, own, reference)), sure, stretch_ms)


def against(own: Sequence[float], reference: float, stretch_ms: float) -> Pairs | None:
    """Pairs of a rank's stretches with one time of another moment; None without stretches."""
    if not own:
        return None
    return Pairs(sorted(_ratio(one, reference) for one in own), False, stretch_ms)


def stretch_ms(summary: Summary) -> float:
    """Milliseconds that a rank worked in each stretch of its window, on average."""
    return summary.mean * summary.count / (len(summary.stretch_medians) or 1)


def _ratio(own: float, reference: float) -> float:
    return own / max(reference, RESOLUTION_MS)


def in_step(own: Summary, others: Sequence[Summary]) -> bool:
    """True if the windows of ranks cover the same steps, so that their stretches do."""
    return all(
        max(own.count, other.count) <= IN_STEP_FACTOR * min(own.count, other.count)
        for other in others
    )
