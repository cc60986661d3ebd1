"""The timeline as a page holds it: rows, and spans in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.report.page.rank_classes import role_of
from hanglab.harness.report.page.records import (
    RankClass,
    TimelineActivity,
    TimelineData,
    TimelineMoment,
    TimelineRow,
)
from hanglab.harness.report.rank_ranges import ranges
from hanglab.harness.report.timeline.building import timeline_of
from hanglab.harness.report.timeline.spans import JobTimeline, Moment, SpanActivity, TimelineSpan

#: Up to so many ranks each has a row: beyond, rows are lower than text.
ROW_EACH = 128
#: Rows of a larger job: a screen or two.
MOST_ROWS = 64
#: Ranks of one class that have rows, where there is room.
ROWS_OF_CLASS = 3
#: Spans in a page, at some 18 bytes each: with the library a page of 64 ranks is below 3 MB.
MOST_SPANS = 30_000
#: Moments of one kind; what the kernel says may be very much.
MOST_MOMENTS = 500


def timeline_data(
    facts: CaseFacts,
    verdict: Verdict,
    classes: Sequence[RankClass],
    faults: Sequence[Moment] = (),
) -> TimelineData | None:
    """Rows for all ranks or, of a large job, for some of each class; None without any time."""
    chosen = rows_of(classes, len(facts.ranks))
    timeline = timeline_of(facts, chosen, faults)
    begin, end = timeline.begin_ns, timeline.end_ns
    if begin is None or end is None:
        return None
    stands_for = _standing_for(classes, chosen)
    begin, older = _cut(timeline, begin)
    data = TimelineData(
        begin_wall_ns=begin,
        end_us=max(0, end - begin) // 1000,
        rows=[
            TimelineRow(
                rank=one.rank,
                ranks=ranges(stands_for.get(one.rank, [one.rank])),
                role=role_of(one.rank, verdict),
                host=one.host,
                pid=one.pid,
            )
            for one in timeline.ranks
        ],
        activities=[],
        older=older,
        ranks_without_row=len(facts.ranks) - len(timeline.ranks),
    )
    _add_spans(data, timeline, begin)
    _add_moments(data, timeline, begin)
    return data


def rows_of(classes: Sequence[RankClass], count: int) -> list[int]:
    """Ranks that have a row: all of a small job; else culprits first, then some of each class."""
    present = [one for one in classes if one.role != "missing"]
    if count <= ROW_EACH:
        return sorted(rank for one in present for rank in one.ranks)
    chosen: list[int] = []
    for place in range(ROWS_OF_CLASS):
        chosen += [one.ranks[place] for one in present if len(one.ranks) > place]
    return sorted(chosen[:MOST_ROWS])


def _standing_for(classes: Sequence[RankClass], chosen: Sequence[int]) -> dict[int, list[int]]:
    """The first row of a class stands for those of it that have none."""
    rows = set(chosen)
    found = {}
    for one in classes:
        mine = [rank for rank in one.ranks if rank in rows]
        if mine:
            found[mine[0]] = [mine[0], *(rank for rank in one.ranks if rank not in rows)]
    return found


def _cut(timeline: JobTimeline, begin: int) -> tuple[int, int]:
    """From when on spans are shown, the same for all rows, and how many are older."""
    begins = np.array(
        [span.begin_ns for one in timeline.ranks for span in one.spans], dtype=np.int64
    )
    if len(begins) <= MOST_SPANS:
        return begin, 0
    first = int(np.partition(begins, -MOST_SPANS)[-MOST_SPANS])
    return first, int((begins < first).sum())


def _add_spans(data: TimelineData, timeline: JobTimeline, begin: int) -> None:
    places: dict[SpanActivity, int] = {}
    for row, one in enumerate(timeline.ranks):
        for span in one.spans:
            # Of what is too old only that which goes on still is shown, from its begin.
            if span.begin_ns < begin and not span.open:
                continue
            if span.activity not in places:
                places[span.activity] = len(places)
                data.activities.append(_activity(span.activity))
            if span.open:
                data.open.append(len(data.row))
            data.row.append(row)
            data.activity.append(places[span.activity])
            data.begin.append((span.begin_ns - begin) // 1000)
            data.length.append(_length(span, data.end_us, begin))
            data.seq.append(-1 if span.seq is None else span.seq)


def _length(span: TimelineSpan, end_us: int, begin: int) -> int:
    if span.open and span.end_ns is None:
        return max(0, end_us - (span.begin_ns - begin) // 1000)
    return -1 if span.end_ns is None else max(0, span.end_ns - span.begin_ns) // 1000


def _activity(activity: SpanActivity) -> TimelineActivity:
    base = activity.file.rsplit("/", 1)[-1]
    return TimelineActivity(
        kind=activity.kind.value,
        name=activity.name,
        group=activity.group,
        place=f"{base}:{activity.line} ({activity.function})" if activity.file else "",
    )


def _add_moments(data: TimelineData, timeline: JobTimeline, begin: int) -> None:
    rows = {row.rank for row in data.rows}
    counts: dict[str, int] = {}
    for moment in timeline.moments:
        counts[moment.kind] = counts.get(moment.kind, 0) + 1
        if moment.rank is not None and moment.rank not in rows:
            continue
        if counts[moment.kind] > MOST_MOMENTS:
            continue
        data.moments.append(
            TimelineMoment(
                at_us=(moment.at_ns - begin) // 1000,
                kind=moment.kind,
                text=moment.text,
                rank=moment.rank,
                host=moment.host,
            )
        )
