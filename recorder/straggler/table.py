"""The sections of a window as columns of numbers: a report goes over hundreds of them at once.

Nothing imports this module before there is a report to make; see slowness/column_summaries.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hanglab.recorder.slowness.column_summaries import (
    COUNT,
    MEDIAN,
    SHORT,
    Rows,
    no_summaries,
    row_of,
    statistics_of,
    summary_of,
)
from hanglab.recorder.slowness.statistics import Statistic
from hanglab.recorder.slowness.thresholds import RESOLUTION_MS
from hanglab.recorder.straggler.window import Measure, SectionWindow

Scores: TypeAlias = NDArray[np.float64]
ByRank: TypeAlias = dict[int, "float | None"]
#: Column of a table's means.
INDIVIDUAL = 2


class SectionTable(Mapping[str, SectionWindow]):
    """Section -> what the window tells of it, put together when it is asked for.

    Args:
        names: Of the sections; one row of each array for each.
        measures: How their work was told from waits.
        means: Communication and input in milliseconds, and the individual score; NaN is
            unknown.
        wall, work, device, best: Summaries; only the rank itself has those of wall time.
    """

    def __init__(
        self,
        names: Sequence[str],
        measures: Sequence[Measure],
        means: NDArray[np.float64],
        wall: Rows,
        work: Rows,
        device: Rows,
        best: Rows,
    ) -> None:
        self.names, self.measures = names, measures
        self.means = means
        self.wall, self.work, self.device, self.best = wall, work, device, best
        self._places = {name: place for place, name in enumerate(names)}
        self._made: dict[str, SectionWindow] = {}

    @classmethod
    def of(cls, sections: Mapping[str, SectionWindow]) -> SectionTable:
        """A table of any sections."""
        if isinstance(sections, SectionTable):
            return sections
        windows = list(sections.values())
        # numpy takes None for NaN.
        means = [(s.communication_ms, s.input_ms, s.individual) for s in windows]
        return cls(
            list(sections),
            [s.measure for s in windows],
            np.array(means, np.float64).reshape(len(windows), 3),
            _rows([row_of(s.wall) for s in windows]),
            _rows([row_of(s.work) for s in windows]),
            _rows([row_of(s.device) for s in windows]),
            _rows([row_of(s.best) for s in windows]),
        )

    def __getitem__(self, name: str) -> SectionWindow:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(self._places[name])
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _make(self, place: int) -> SectionWindow:
        communication_ms, input_ms, individual = self.means[place].tolist()
        return SectionWindow(
            work=summary_of(self.work[place].tolist()),
            measure=self.measures[place],
            wall=summary_of(self.wall[place].tolist()),
            communication_ms=communication_ms,
            input_ms=input_ms,
            device=summary_of(self.device[place].tolist()),
            best=summary_of(self.best[place].tolist()),
            individual=None if math.isnan(individual) else individual,
        )

    def statistics(self) -> dict[str, dict[Statistic, float | None]]:
        """Section -> its wall time's, where the table has it."""
        return {
            name: statistics_of(row)
            for name, row in zip(self.names, self.wall.tolist(), strict=True)
            if not math.isnan(row[COUNT])
        }


class BestWindows:
    """The best windows that this rank's sections ever had."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._best = no_summaries(0)

    def judge(self, names: Sequence[str], work: Rows, keep: bool) -> tuple[Rows, Scores]:
        """Judge each section by its best window, as far as that is not the present one, and the
        score of the present one's ``work`` against the best.

        ``keep`` leaves the past as it is.
        """
        places = [self._places.setdefault(name, len(self._places)) for name in names]
        if len(self._places) > len(self._best):
            more = no_summaries(len(self._places) - len(self._best))
            self._best = np.concatenate((self._best, more))
        best = self._best[places]
        medians = work[:, MEDIAN]
        better = (medians < best[:, MEDIAN]) | (np.isnan(best[:, MEDIAN]) & ~np.isnan(medians))
        scores = ratios(np.where(better, medians, best[:, MEDIAN]), medians)
        best[better] = np.nan
        if not keep:
            new = work[better]
            # It is never of the same moments as another window: stretches tell nothing.
            new[:, SHORT - 1 :] = np.nan
            new[:, SHORT - 1] = 0.0
            self._best[np.array(places, np.int64)[better]] = new
        return best, scores


def relative(tables: Sequence[SectionTable], names: Sequence[str], alone: bool) -> Scores:
    """Scores of a section's work against the fastest rank's: a section a row, a rank a column.

    NaN is unknown: of a rank that has not timed the section, and where no other rank
    has, unless it is ``alone`` in its job and its own reference.
    """
    medians = _by_section(tables, names, lambda table: table.work[:, MEDIAN])
    fewest = 1 if alone else 2
    enough = np.count_nonzero(~np.isnan(medians), axis=1) >= fewest
    fastest = np.where(enough, np.fmin.reduce(medians, axis=1, initial=np.inf), np.nan)
    return ratios(fastest[:, None], medians)


def individual(tables: Sequence[SectionTable], names: Sequence[str]) -> Scores:
    """Scores of ranks against their own past, as those of ``relative``."""
    return _by_section(tables, names, lambda table: table.means[:, INDIVIDUAL])


def ratios(reference: Scores, own: Scores) -> Scores:
    """``ratio`` of the scores' arithmetic, of many; NaN where either is unknown."""
    found: Scores = np.maximum(reference, RESOLUTION_MS) / np.maximum(own, RESOLUTION_MS)
    return np.minimum(1.0, found)


def scores_by_rank(names: Sequence[str], ranks: Sequence[int], scores: Scores) -> dict[str, ByRank]:
    """Section -> rank -> score, None where it is unknown."""
    by_section: list[list[float | None]] = scores.tolist()
    for section, rank in np.argwhere(np.isnan(scores)).tolist():
        by_section[section][rank] = None
    return {
        name: dict(zip(ranks, of_section, strict=True))
        for name, of_section in zip(names, by_section, strict=True)
    }


def _by_section(
    tables: Sequence[SectionTable],
    names: Sequence[str],
    column: Callable[[SectionTable], Scores],
) -> Scores:
    places = {name: place for place, name in enumerate(names)}
    found: Scores = np.full((len(names), len(tables)), np.nan)
    for rank, table in enumerate(tables):
        # A table may hold sections that nobody asks for.
        rows = np.array([places.get(name, -1) for name in table.names], np.int64)
        found[rows[rows >= 0], rank] = column(table)[rows >= 0]
    return found


def _rows(rows: list[list[float]]) -> Rows:
    return np.array(rows, np.float64) if rows else no_summaries(0)
