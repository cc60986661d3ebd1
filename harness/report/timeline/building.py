"""The timeline of a job out of its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.harness.report.timeline.moments import moments_of
from hanglab.harness.report.timeline.operations import operation_spans
from hanglab.harness.report.timeline.spans import (
    JobTimeline,
    Moment,
    RankTimeline,
    SpanActivity,
    SpanKind,
    TimelineSpan,
)
from hanglab.recorder.case.backends import backends_in
from hanglab.recorder.case.progress_records import Progress


def timeline_of(
    facts: CaseFacts, ranks: Iterable[int] | None = None, faults: Iterable[Moment] = ()
) -> JobTimeline:
    """The timeline of all ranks, or of those asked for; of a bare folder by its dumps alone.

    ``faults`` are moments of which the evidence knows nothing.
    """
    wanted = sorted(facts.ranks if ranks is None else set(ranks) & set(facts.ranks))
    dumps = dumps_of(facts, wanted)
    timeline = JobTimeline()
    timeline.moments = sorted([*moments_of(facts), *faults], key=lambda moment: moment.at_ns)
    for rank in wanted:
        timeline.ranks.append(_rank(facts.ranks[rank], dumps.get(rank)))
    timeline.end_ns = _end(facts, timeline)
    return timeline


def dumps_of(facts: CaseFacts, ranks: Iterable[int]) -> dict[int, RankDump]:
    """The dumps of these ranks; of a bare folder they are read again."""
    wanted = list(ranks)
    lookup = facts.graph.lookup
    if facts.dumps or lookup is None:
        return {rank: facts.dumps[rank] for rank in wanted if rank in facts.dumps}
    lookup.prefetch(wanted)
    found = {rank: lookup.dump(rank) for rank in wanted}
    return {rank: dump for rank, dump in found.items() if dump is not None}


def _rank(view: RankView, dump: RankDump | None) -> RankTimeline:
    on_device = {
        group.id
        for group in view.groups
        if any(backend.enqueued for backend in backends_in(group.backend))
    }
    spans = operation_spans(dump, view.progress, view.code, view.clock_ahead_ns, on_device)
    steps: list[tuple[int, int]] = []
    if view.progress is not None:
        spans += _sections(view.progress, view.clock_ahead_ns)
        spans += _collections(view.progress, view.clock_ahead_ns)
        steps = [(step, at - view.clock_ahead_ns) for step, at in view.progress.steps]
    if view.ended is not None:
        end = view.ended.at.wall_ns
        spans = [replace(s, end_ns=max(end, s.begin_ns)) if s.open else s for s in spans]
    spans.sort(key=lambda span: span.begin_ns)
    return RankTimeline(view.rank, view.host, view.pid, spans, steps)


def _sections(progress: Progress, ahead_ns: int) -> Iterator[TimelineSpan]:
    kinds = {
        total.section: SpanKind(total.kind) if total.kind else SpanKind.SECTION
        for total in progress.section_totals
    }
    known: dict[str, SpanActivity] = {}

    def activity(section: str) -> SpanActivity:
        made = SpanActivity(kinds.get(section, SpanKind.SECTION), section)
        return known.setdefault(section, made)

    for event in progress.section_events:
        begin = event.started_ns - ahead_ns
        yield TimelineSpan(activity(event.section), begin, begin + event.wall_ns)
    for section in progress.open_sections:
        yield TimelineSpan(
            activity(section.section), section.started_ns - ahead_ns, None, open=True
        )


def _collections(progress: Progress, ahead_ns: int) -> Iterator[TimelineSpan]:
    for pause in progress.pauses:
        begin = pause.started_ns - ahead_ns
        name = f"generation {pause.generation}"
        yield TimelineSpan(SpanActivity(SpanKind.COLLECTION, name), begin, begin + pause.wall_ns)
    if progress.collecting_since_ns is not None:
        begin = progress.collecting_since_ns - ahead_ns
        yield TimelineSpan(
            SpanActivity(SpanKind.COLLECTION, "garbage collection"), begin, None, open=True
        )


def _end(facts: CaseFacts, timeline: JobTimeline) -> int | None:
    """The capture, or whatever was later: a job may go on after it."""
    times = [span.end_ns or span.begin_ns for one in timeline.ranks for span in one.spans] + [
        moment.at_ns for moment in timeline.moments
    ]
    trigger = facts.job.trigger if facts.job is not None else None
    if trigger is not None:
        times.append(trigger.at.wall_ns)
    elif facts.graph.idle_s and times:
        # Dumps say how long nothing had moved when they were written.
        times.append(max(times) + int(facts.graph.idle_s * 1e9))
    return max(times, default=None)
