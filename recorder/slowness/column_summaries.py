"""The arithmetic of ``summarize`` for many windows of timings at once, by numpy.

A report of a hundred sections has no time for a hundred passes of Python.  Every number
comes out as ``summarize`` gives it: the same operations, each sum in the same order.
Nothing imports this module before it has a report to make: numpy takes its time to import.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hanglab.recorder.slowness.statistics import (
    STRETCHES,
    TRIMMED,
    Statistic,
    Summary,
    clusters,
    cuts,
    summarize,
)
from hanglab.recorder.slowness.thresholds import STALL_FACTOR, STALL_MS

#: A summary a row: its plain fields, the number of its stretches, and room for the medians
#: and for the means of as many as there can be.  What is not known is NaN; so is the whole
#: row where there is no summary.
Rows: TypeAlias = NDArray[np.float64]
_PLAIN = Summary._fields.index("stretch_medians")
#: Columns of a summary without stretches, and of a whole one.
SHORT = _PLAIN + 1
WIDTH = SHORT + 2 * STRETCHES
COUNT, MEDIAN = map(Summary._fields.index, ("count", "median"))
#: Windows of one length are summed up together if there are so many; numpy takes its time
#: for each of its calls.
_TOGETHER = 8


def summarize_all(windows: Sequence[Collection[float]], unit: float = 1.0) -> Rows:
    """Summaries of windows of timings in so many ``unit`` a millisecond: a row for each."""
    rows = no_summaries(len(windows))
    by_count: dict[int, list[int]] = {}
    for place, window in enumerate(windows):
        by_count.setdefault(len(window), []).append(place)
    for count, places in by_count.items():
        if not count:
            continue
        of_count = [windows[place] for place in places]
        if len(places) < _TOGETHER:
            rows[places] = [_alone(window, unit) for window in of_count]
            continue
        flat = np.fromiter(chain.from_iterable(of_count), np.float64, count * len(places))
        timings = np.ascontiguousarray(flat.reshape(len(places), count).T) / unit
        # What is no time makes a window's sums useless: it is summed up anew, alone.
        with np.errstate(all="ignore"):
            rows[places] = _together(timings)
    return rows


def no_summaries(number: int) -> Rows:
    """Rows of nothing, ``rows`` of them."""
    return np.full((number, WIDTH), np.nan)


def row_of(summary: Summary | None) -> list[float]:
    """A summary as a row."""
    if summary is None:
        return [math.nan] * WIDTH
    *plain, medians, means = summary
    rest = [math.nan] * (STRETCHES - len(medians))
    known = [math.nan if value is None else float(value) for value in plain]
    return [*known, float(len(medians)), *medians, *rest, *means, *rest]


def summary_of(row: Sequence[float]) -> Summary | None:
    """The summary in a row, which may be a short one."""
    count, minimum, maximum, median, mean, deviation, tail, error, trimmed, *rest = row[:_PLAIN]
    trimmed_error, stalls, stalled_ms = rest
    if math.isnan(count):
        return None
    stretches = int(row[_PLAIN])
    return Summary(
        int(count),
        minimum,
        maximum,
        median,
        mean,
        _known(deviation),
        tail,
        _known(error),
        trimmed,
        _known(trimmed_error),
        int(stalls),
        stalled_ms,
        tuple(row[SHORT : SHORT + stretches]),
        tuple(row[SHORT + STRETCHES : SHORT + STRETCHES + stretches]),
    )


def statistics_of(row: Sequence[float]) -> dict[Statistic, float | None]:
    """Figures as ``Summary.statistics`` gives them, from a row, without making the summary."""
    count, minimum, maximum, median, mean, deviation, tail, *_ = row
    return {
        Statistic.MIN: minimum,
        Statistic.MAX: maximum,
        Statistic.MED: median,
        Statistic.AVG: mean,
        Statistic.STD: _known(deviation),
        Statistic.NUM: int(count),
        Statistic.TAIL: tail,
    }


def _alone(window: Collection[float], unit: float) -> list[float]:
    return row_of(summarize([timing / unit for timing in window]))


def _together(timings: NDArray[np.float64]) -> Rows:
    """Rows of windows of one length: an entry a row of ``timings``, a window a column."""
    count = len(timings)
    ordered = np.sort(timings, axis=0)
    total = _sum(ordered)
    middle = _percentile(ordered, 0.5)
    dropped = max(1, round(TRIMMED * count)) if count > 1 else 0
    off = ordered - middle
    squares = off * off
    kept = count - dropped
    usual_sum, usual_squares = _sum(off[:kept]), _sum(squares[:kept])
    limit = np.maximum(STALL_FACTOR * middle, middle + STALL_MS)
    found = np.full((timings.shape[1], WIDTH), np.nan)
    plain = (
        count,
        ordered[0],
        ordered[-1],
        middle,
        total / count,
        _deviation(count, usual_sum + _sum(off[kept:]), usual_squares + _sum(squares[kept:])),
        _percentile(ordered, 0.95),
        _median_error(ordered),
        middle + usual_sum / kept,
        _deviation(kept, usual_sum, usual_squares) / math.sqrt(kept),
        0,
        _sum(np.where(ordered > limit, off, 0.0)[:-1]),
        len(cuts(count)),
    )
    for column, values in enumerate(plain):
        found[:, column] = values
    for place in np.flatnonzero(ordered[-1] > limit).tolist():
        found[place, _PLAIN - 2] = clusters(timings[:, place].tolist(), float(limit[place]))
    for places, entries in _stretches(count):
        stretches = np.sort(timings[entries], axis=1)
        length = stretches.shape[1]
        means = _sum(stretches, axis=1) / length
        found[:, SHORT + places] = stretches[:, length >> 1].T
        found[:, SHORT + STRETCHES + places] = means.T
    for place in np.flatnonzero((ordered[0] < 0.0) | ~np.isfinite(total)).tolist():
        found[place] = row_of(summarize(timings[:, place].tolist()))
    return found


def _sum(values: NDArray[np.float64], axis: int = 0) -> NDArray[np.float64]:
    """Sums from the first value to the last: numpy adds up in pairs only along the last axis."""
    added: NDArray[np.float64] = np.add.reduce(values, axis=axis)
    return added


def _percentile(ordered: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    found: NDArray[np.float64] = low + (high - low) * (place - below)
    return found


def _median_error(ordered: NDArray[np.float64]) -> NDArray[np.float64] | float:
    if len(ordered) < 4:
        return math.nan
    apart = _percentile(ordered, 0.75) - _percentile(ordered, 0.25)
    return 1.2533 * apart / 1.349 / math.sqrt(len(ordered))


def _deviation(
    count: int, total: NDArray[np.float64], squares: NDArray[np.float64]
) -> NDArray[np.float64]:
    if count < 2:
        return np.full(len(total), np.nan)
    deviations: NDArray[np.float64] = np.sqrt(
        np.maximum(0.0, squares - total * total / count) / (count - 1)
    )
    return deviations


@functools.lru_cache(maxsize=64)
def _stretches(count: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Stretches of each length of a window of so many entries: which of all they are,
    and their entries, a stretch a row."""
    by_length: dict[int, list[int]] = {}
    for place, cut in enumerate(cuts(count)):
        by_length.setdefault(cut.stop - cut.start, []).append(place)
    return [
        (
            np.array(places, np.int64),
            np.array([range(cuts(count)[p].start, cuts(count)[p].stop) for p in places], np.int64),
        )
        for places in by_length.values()
    ]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
