"""Scores from 0 (worst) to 1 (best): reference time over own time.

As NVIDIA's resiliency extension defines them (`straggler` package): the relative
score compares with the fastest rank, the individual score with the best that the
rank itself ever did, by medians.
"""

from __future__ import annotations

from collections.abc import Mapping

from hanglab.recorder.slowness.thresholds import RESOLUTION_MS


def ratio(reference: float, own: float) -> float:
    """Score of ``own`` milliseconds against ``reference``; above 1 is 1."""
    return min(1.0, max(reference, RESOLUTION_MS) / max(own, RESOLUTION_MS))


def relative_scores(
    medians: Mapping[int, float | None], alone: bool = False
) -> dict[int, float | None]:
    """Rank -> score against the fastest rank.

    A rank without a median is unknown; so is one that has nobody to compare with,
    unless it is ``alone`` in its job, where it is its own reference.
    """
    known = [median for median in medians.values() if median is not None]
    if len(known) < 2 and not alone:
        return dict.fromkeys(medians)
    return {
        rank: None if median is None else ratio(min(known), median)
        for rank, median in medians.items()
    }


def individual_scores(
    medians: Mapping[str, float | None], best: Mapping[str, float]
) -> dict[str, float | None]:
    """Name -> score against the best median that this rank ever had, this one included."""
    return {
        name: None if median is None else ratio(min(median, best.get(name, median)), median)
        for name, median in medians.items()
    }
