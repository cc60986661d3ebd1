"""Sections of ranks, compared by processor time: a wait inside of one does not count."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from hanglab.analyzer.facts.evidence import Evidence
from hanglab.recorder.case.progress_records import SectionTotal

#: Fewest entries of a section on each rank that are compared.
_FEWEST = 20
#: How much more than the middle of its peers, and than the most of them, a rank must need.
_LONGER = 1.2
_BEYOND_ALL = 1.1
#: Least difference per entry, in nanoseconds.
_LEAST_NS = 1e6


def heaviest_section(known: Evidence, rank: int, least_ns: float) -> str | None:
    """The section in which the rank used most processor time beyond its peers.

    None where that is less than ``least_ns`` in all.
    """
    best: tuple[float, str] = (least_ns, "")
    for total, peers in _shared(known, rank):
        usual = median(t.cpu_ns / t.count for t in peers)
        best = max(best, (total.cpu_ns - usual * total.count, total.section))
    return best[1] or None


def longer_section(known: Evidence, rank: int) -> str | None:
    """A section that takes the rank more processor time by habit: typical and quickest entries.

    Neighbours on a crowded machine stretch some entries; the quickest fifth
    shows what the work itself takes.
    """
    for section, mine, theirs in _compared(known, rank):
        if all(
            mine[i] >= _LONGER * median(t[i] for t in theirs)
            and mine[i] >= _BEYOND_ALL * max(t[i] for t in theirs)
            and mine[i] >= median(t[i] for t in theirs) + _LEAST_NS
            for i in (0, 1)
        ):
            return section
    return None


def slower_throughout(known: Evidence, rank: int, factor: float) -> bool:
    """Whether each of its sections, two at least, takes it ``factor`` times the peers' time.

    More work has its place; what makes everything slower, down to the optimizer's step, is
    the processor: a slower one, or one that is shared with something unseen.
    """
    compared = list(_compared(known, rank))
    return len(compared) > 1 and all(
        mine[i] >= factor * median(t[i] for t in theirs)
        for _, mine, theirs in compared
        for i in (0, 1)
    )


def _compared(
    known: Evidence, rank: int
) -> Iterator[tuple[str, tuple[float, float], list[tuple[float, float]]]]:
    """Sections that were entered often, with what is typical of the rank and of its peers."""
    for total, peers in _shared(known, rank):
        if min(total.count, *(t.count for t in peers)) < _FEWEST:
            continue
        mine = _typical(known, rank, total.section)
        others = [_typical(known, r, total.section) for r in known.ranks if r != rank]
        theirs = [found for found in others if found is not None]
        if mine is not None and theirs:
            yield total.section, mine, theirs


def _shared(known: Evidence, rank: int) -> Iterator[tuple[SectionTotal, list[SectionTotal]]]:
    """The rank's sections, waits for input aside, each with its peers' of the same name."""
    progress = known.ranks[rank].progress
    for total in progress.section_totals if progress else ():
        if total.kind == "input" or not total.count:
            continue
        peers = [
            t
            for r, v in known.ranks.items()
            if r != rank and v.progress
            for t in v.progress.section_totals
            if (t.section, t.kind) == (total.section, total.kind) and t.count
        ]
        if peers:
            yield total, peers


def _typical(known: Evidence, rank: int, section: str) -> tuple[float, float] | None:
    """Processor time of an entry, nanoseconds: the median, and the quickest fifth's."""
    progress = known.ranks[rank].progress
    times = [e.cpu_ns for e in progress.section_events if e.section == section] if progress else []
    if len(times) < _FEWEST:
        return None
    quick, middle = np.quantile(times, [0.2, 0.5])
    return float(middle), float(quick)
