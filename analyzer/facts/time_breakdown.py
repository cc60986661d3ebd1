"""Time breakdowns: what filled each rank's own time, by its processor, loader and collector."""

from __future__ import annotations

from statistics import median

import numpy as np

from hanglab.analyzer.facts.aligned_collectives import Times, updates_of
from hanglab.analyzer.facts.arrival_lag import Arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.thresholds import PARTS, SHORTEST_USAGE_NS
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.slowness.job_window import TimeBreakdown


def time_breakdowns(facts: CaseFacts, found: Arrivals) -> dict[int, TimeBreakdown]:
    """Breakdown of every rank that was compared.

    Processor time and waits for a processor are scaled from the looks that were had to the
    whole time.
    """
    ranks = sorted(found.lateness)
    result = {
        rank: _time_breakdown(facts.ranks[rank], found) for rank in ranks if rank in facts.ranks
    }
    _add_usage(facts, found, result)
    return result


def _window(found: Arrivals) -> tuple[float, float]:
    return found.begin_ns, found.begin_ns + found.span_ns


def _time_breakdown(view: RankView, found: Arrivals) -> TimeBreakdown:
    spent = TimeBreakdown()
    own = found.own(view.rank)
    progress = view.progress
    if progress is None:
        return spent
    names = {t.section for t in progress.section_totals if t.kind == "input"}
    waits = [e for e in progress.section_events if e.section in names]
    begins = found.local(view.rank, (e.started_ns for e in waits))
    overlap = own.overlap(begins, begins + np.array([e.wall_ns for e in waits], dtype=float))
    spent.input_ns = float(overlap.sum())
    begin, end = _window(found)
    inside = (begins >= begin) & (begins <= end)
    spent.input_cpu_ns = float(sum(e.cpu_ns for e, i in zip(waits, inside, strict=True) if i))
    spans = collector_runs(progress, view.rank, found)
    spent.collecting_ns = float(own.overlap(spans[:, 0], spans[:, 1]).sum())
    spent.collections = int(((spans[:, 0] >= begin) & (spans[:, 0] <= end)).sum())
    drawn = found.local(view.rank, (b.at_ns for b in progress.batches))
    sizes = [
        b.elements
        for b, at in zip(progress.batches, drawn.tolist(), strict=True)
        if begin <= at <= end and b.elements
    ]
    spent.batches = len(sizes)
    spent.elements = sum(sizes) / len(sizes) if sizes else None
    return spent


def collector_runs(progress: Progress, rank: int, found: Arrivals) -> Times:
    """The garbage collector's runs on the common clock, shape (n, 2)."""
    begins = found.local(rank, (p.started_ns for p in progress.pauses))
    walls = np.array([p.wall_ns for p in progress.pauses], dtype=np.float64)
    return np.stack([begins, begins + walls], axis=1)


def _add_usage(facts: CaseFacts, found: Arrivals, result: dict[int, TimeBreakdown]) -> None:
    """Processor time and waits over one window, of the ranks that were looked at all through it."""
    looks = {
        rank: looked
        for rank in result
        if (looked := _usage_series(facts.ranks[rank].progress, rank, found)) is not None
    }
    if len(looks) < 2:
        return
    begin, end = _window(found)
    begin = max(begin, *(float(at[0]) for look in looks.values() for at, _ in look))
    end = min(end, *(float(at[-1]) for look in looks.values() for at, _ in look))
    if end - begin < SHORTEST_USAGE_NS:
        return
    scale = found.span_ns / (end - begin)
    inner = np.linspace(begin, end, PARTS + 1)
    for rank, ((at, cpu), *rest) in looks.items():
        result[rank].cpu_parts = (np.diff(np.interp(inner, at, cpu)) * scale).tolist()
        result[rank].cpu_ns = sum(result[rank].cpu_parts)
        for told, waited in rest:
            result[rank].waited_parts = (np.diff(np.interp(inner, told, waited)) * scale).tolist()
            result[rank].waited_ns = sum(result[rank].waited_parts)


def _usage_series(
    progress: Progress | None, rank: int, found: Arrivals
) -> list[tuple[Times, Times]] | None:
    """(moments, totals) of processor time and, where the kernel tells, of waits for one."""
    if progress is None:
        return None
    if len(progress.usage) > 1:
        used = [(u.at_ns, u.cpu_ns) for u in progress.usage]
        # When the main thread has ended the kernel tells no more.
        waited = [(u.at_ns, u.waited_ns) for u in progress.usage if u.waited_ns is not None]
        return [_series(rank, found, s) for s in (used, waited) if len(s) > 1]
    first, last = progress.cpu_first_at_ns, progress.cpu_last_at_ns
    if first and last and last > first:
        used = [(first, progress.cpu_first_ns or 0), (last, progress.cpu_last_ns or 0)]
        return [_series(rank, found, used)]
    return None


def _series(rank: int, found: Arrivals, values: list[tuple[int, int]]) -> tuple[Times, Times]:
    at = found.local(rank, (moment for moment, _ in values))
    return at, np.array([value for _, value in values], dtype=np.float64)


def steps(facts: CaseFacts, found: Arrivals) -> int:
    """Steps of the job within the time observed: by its marks, the optimizer's, or by stretches of
    work.

    At least 1.
    """
    begin, end = _window(found)
    counts = []
    for rank in found.lateness:
        progress = facts.ranks[rank].progress if rank in facts.ranks else None
        if progress is None:
            continue
        marks = [at for _, at in progress.steps] or [at for at, _ in updates_of(progress)]
        local = found.local(rank, marks)
        counts.append(int(((local >= begin) & (local <= end)).sum()))
    counts = [count for count in counts if count]
    if counts:
        return max(1, round(median(counts)))
    return found.stretches
