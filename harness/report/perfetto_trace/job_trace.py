"""The trace of a job: a process a rank, tracks of its groups, calls and sections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.harness.report.page.host_charts import host_charts
from hanglab.harness.report.perfetto_trace.kineto import kineto_threads
from hanglab.harness.report.perfetto_trace.lanes import Notes, Slice
from hanglab.harness.report.perfetto_trace.writer import TraceWriter
from hanglab.harness.report.timeline.building import timeline_of
from hanglab.harness.report.timeline.spans import (
    JobTimeline,
    Moment,
    RankTimeline,
    SpanActivity,
    SpanKind,
    TimelineSpan,
)
from hanglab.recorder.case import evidence_files as files

#: Tracks of a rank for whatever is no operation, in their order.
_TRACKS = {
    "sections": (SpanKind.SECTION, SpanKind.INPUT, SpanKind.UPDATE),
    "garbage collection": (SpanKind.COLLECTION,),
}
#: A group by its name in dumps and its members, and the number of a collective in it.
_Collective = tuple[str, tuple[int, ...], int]


def write_job_trace(writer: TraceWriter, facts: CaseFacts, faults: Sequence[Moment] = ()) -> None:
    """Write all that is known of the job's time: ranks, hosts, moments, profiles."""
    timeline = timeline_of(facts, faults=faults)
    begin = timeline.begin_ns
    if begin is not None:
        writer.clock(begin)
    flows: dict[_Collective, int] = {}
    pids = _pids(facts)
    job = writer.track("job")
    tracks: dict[int, int] = {}
    for one in timeline.ranks:
        view = facts.ranks[one.rank]
        known = ", ".join(filter(None, [f"pid {view.pid}" if view.pid else "", view.host]))
        name = f"rank {one.rank}{f' ({known})' if known else ''}"
        tracks[one.rank] = writer.process(name, pids[one.rank])
        _write_rank(writer, tracks[one.rank], one, timeline, flows)
        _write_profiles(writer, tracks[one.rank], view)
    _write_moments(writer, timeline.moments, job, tracks)
    _write_hosts(writer, facts)


def _pids(facts: CaseFacts) -> dict[int, int]:
    """Numbers of the ranks' processes: their own, or made up where two hosts had the same."""
    counts = Counter(view.pid for view in facts.ranks.values())
    real = None not in counts and all(count == 1 for count in counts.values())
    return {rank: view.pid if real and view.pid else rank + 1 for rank, view in facts.ranks.items()}


def _write_rank(
    writer: TraceWriter,
    process: int,
    rank: RankTimeline,
    timeline: JobTimeline,
    flows: dict[_Collective, int],
) -> None:
    end = timeline.end_ns or 0
    marks: dict[str, list[TimelineSpan]] = {}
    groups: dict[str, list[Slice]] = {}
    calls: list[Slice] = []
    for span in rank.spans:
        activity = span.activity
        if activity.kind is SpanKind.WAIT:
            calls.append(_slice(span, end))
        elif activity.kind is SpanKind.OPERATION:
            label = activity.group or activity.group_id or "?"
            if span.end_ns is None and not span.open:
                marks.setdefault(label, []).append(span)
            else:
                flow = _flow(span, flows)
                groups.setdefault(label, []).append(_slice(span, end, flow))
            if span.returned_ns is not None:
                calls.append(Slice(span.begin_ns, span.returned_ns, activity.name, _notes(span)))
    for label, slices in groups.items():
        writer.slices(f"group {label}", process, slices, nest=False)
    for label, spans in marks.items():
        track = writer.track(f"group {label}, begins", process)
        for span in spans:
            writer.instant(track, span.begin_ns, span.activity.name, _notes(span))
    writer.slices("calls and waits", process, calls, nest=True)
    for name, kinds in _TRACKS.items():
        own = [_slice(span, end) for span in rank.spans if span.activity.kind in kinds]
        writer.slices(name, process, own, nest=True)
    writer.slices("steps", process, _steps(rank, end), nest=False)


def _slice(span: TimelineSpan, end_ns: int, flow: int | None = None) -> Slice:
    begin = span.begin_ns
    stop = max(end_ns if span.end_ns is None else span.end_ns, begin)
    name = f"{span.activity.name} (not ended)" if span.open else span.activity.name
    return Slice(begin, stop, name, _notes(span), flow)


def _notes(span: TimelineSpan) -> Notes:
    notes: Notes = {}
    if span.seq is not None:
        notes["seq"] = span.seq
    if span.activity.group:
        notes["group"] = span.activity.group
    if span.peer is not None:
        notes["peer"] = span.peer
    if span.activity.file:
        notes["line"] = _line(span.activity)
    if span.open:
        notes["not_ended"] = True
    return notes


def _line(activity: SpanActivity) -> str:
    return f"{activity.file}:{activity.line} ({activity.function})"


def _flow(span: TimelineSpan, flows: dict[_Collective, int]) -> int | None:
    """The number that all ranks' parts of one collective have in common."""
    if span.seq is None:
        return None
    key = span.activity.group_id, span.activity.members, span.seq
    return flows.setdefault(key, len(flows) + 1)


def _steps(rank: RankTimeline, end_ns: int) -> Iterator[Slice]:
    stops = [at for _, at in rank.steps[1:]] + [end_ns]
    for (step, begin), stop in zip(rank.steps, stops, strict=False):
        yield Slice(begin, max(stop, begin), f"step {step}", {"step": step})


def _write_moments(
    writer: TraceWriter, moments: list[Moment], job: int, tracks: dict[int, int]
) -> None:
    for moment in moments:
        track = job if moment.rank is None else tracks.get(moment.rank, job)
        notes: Notes = {"kind": moment.kind}
        if moment.host:
            notes["host"] = moment.host
        writer.instant(track, moment.at_ns, moment.text, notes)


def _write_hosts(writer: TraceWriter, facts: CaseFacts) -> None:
    for host in host_charts(facts, (), most_hosts=len(facts.hosts)):
        parent = writer.track(f"host {host.host}")
        for chart in host.charts:
            for line in chart.lines:
                track = writer.track(f"{chart.title}: {line.name}", parent, unit=chart.unit)
                for at, value in zip(line.x, line.y, strict=True):
                    if value is not None:
                        writer.value(track, host.begin_wall_ns + round(at * 1e9), value)


def _write_profiles(writer: TraceWriter, process: int, view: RankView) -> None:
    for data in view.read(files.TRACES):
        for thread in kineto_threads(data, view.clock_ahead_ns):
            writer.slices(f"profile, {thread.name}", process, thread.slices, nest=True)


def write_trace_file(facts: CaseFacts, target: Path, faults: Sequence[Moment] = ()) -> None:
    """Write the trace into a file, whole or not at all.

    Raises MissingExtra without the package ``perfetto``, OSError where it cannot be written.
    """
    temporary = target.with_name(f".{target.name}.part")
    try:
        with temporary.open("wb") as file:
            write_job_trace(TraceWriter(file), facts, faults)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
