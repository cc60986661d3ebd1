"""Operations of a rank as spans: calls that the Python boundary saw, and entries of its buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from hanglab.analyzer.code_owners import CodeMap
from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump
from hanglab.analyzer.matching.completion import completed
from hanglab.harness.report.timeline.spans import SpanActivity, SpanKind, TimelineSpan
from hanglab.recorder.case.backends import backend_of
from hanglab.recorder.case.operations import op_of_method
from hanglab.recorder.case.progress_records import OperationCall, Progress


class _EntryEnd(NamedTuple):
    """The end of a call, as the entry that it made has it."""

    seq: int | None
    finished: bool
    completed_ns: int | None
    #: A wait of the host ends when the operation does.
    blocking: bool


def operation_spans(
    dump: RankDump | None,
    progress: Progress | None,
    code: CodeMap,
    ahead_ns: int,
    on_device: Collection[str] = (),
) -> list[TimelineSpan]:
    """Spans of all operations that are known of a rank, and of its waits for them.

    ``ahead_ns`` is by how much its host's clock is ahead of the job's, ``on_device`` are groups
    whose operations run on a device, so that a host's calls tell nothing of their end.
    """
    calls = progress.operations if progress is not None else []
    seen = _BoundaryCalls(calls)
    spans = list(_entries(dump, seen, code, ahead_ns)) if dump is not None else []
    spans += _calls(calls, dump, seen, ahead_ns, on_device)
    return spans


class _BoundaryCalls:
    """Calls by group, so that an entry finds the one during which it was made."""

    def __init__(self, calls: list[OperationCall]) -> None:
        self._calls: dict[str, list[OperationCall]] = {}
        #: By the index of a call, what its entry says of it.
        self.ends: dict[int, _EntryEnd] = {}
        for call in calls:
            self._calls.setdefault(call.group, []).append(call)
        self._begins = {
            group: np.array([call.entered_ns for call in made], dtype=np.int64)
            for group, made in self._calls.items()
        }

    def call_during(self, group: str, created_ns: int) -> OperationCall | None:
        begins = self._begins.get(group)
        if begins is None:
            return None
        place = int(np.searchsorted(begins, created_ns, side="right")) - 1
        if place < 0:
            return None
        call = self._calls[group][place]
        late = call.returned_ns is not None and created_ns > call.returned_ns
        return None if late else call


def _entries(
    dump: RankDump, seen: _BoundaryCalls, code: CodeMap, ahead_ns: int
) -> Iterator[TimelineSpan]:
    """Spans of entries that no call of the boundary stands for."""
    entries = dump.entries
    if entries is None:
        return
    finished = completed(dump).tolist()
    created, ended = entries.created_ns.tolist(), entries.completed_ns.tolist()
    seqs, p2p = entries.seq.tolist(), entries.is_p2p.tolist()
    known: dict[tuple[int, int, int], SpanActivity] = {}
    for row, begin in enumerate(created):
        if begin == ABSENT:
            continue
        seq = None if p2p[row] or seqs[row] == ABSENT else seqs[row]
        call = seen.call_during(entries.group_at(row), begin)
        if call is not None:
            blocking = backend_of(entries.operation_at(row).backend).blocking
            at = None if ended[row] == ABSENT else ended[row]
            seen.ends[call.index] = _EntryEnd(seq, finished[row], at, blocking)
            continue
        key = (int(entries.operation[row]), int(entries.group[row]), int(entries.stack[row]))
        activity = known.get(key)
        if activity is None:
            activity = known[key] = _activity_of_entry(entries, row, dump, code)
        end = None if ended[row] == ABSENT or not finished[row] else ended[row] - ahead_ns
        peer = entries.operation_at(row).peer if p2p[row] else ABSENT
        yield TimelineSpan(
            activity,
            begin - ahead_ns,
            end,
            open=not finished[row],
            seq=seq,
            peer=_global(peer, activity.members),
            tag=entries.operation_at(row).tag if p2p[row] else 0,
        )


def _activity_of_entry(entries: Entries, row: int, dump: RankDump, code: CodeMap) -> SpanActivity:
    group = entries.group_names[int(entries.group[row])]
    frame = code.innermost_user(entries.stack_at(row))
    return SpanActivity(
        SpanKind.OPERATION,
        entries.operation_at(row).op,
        group.description or group.name,
        group.name,
        dump.members.get(group.name, ()),
        frame.file if frame else "",
        frame.line if frame else 0,
        frame.function if frame else "",
    )


def _calls(
    calls: list[OperationCall],
    dump: RankDump | None,
    seen: _BoundaryCalls,
    ahead_ns: int,
    on_device: Collection[str],
) -> Iterator[TimelineSpan]:
    members = dump.members if dump is not None else {}
    labels = dump.descriptions if dump is not None else {}
    known: dict[tuple[str, str, str, int], tuple[SpanActivity, SpanActivity]] = {}
    for call in calls:
        key = (call.method, call.group, call.file, call.line)
        pair = known.get(key)
        if pair is None:
            name = name_of_method(call.method)
            place = (
                labels.get(call.group) or call.group, call.group, members.get(call.group, ()),
                call.file, call.line, call.function,
            )  # fmt: skip
            pair = known[key] = (
                SpanActivity(SpanKind.OPERATION, name, *place),
                SpanActivity(SpanKind.WAIT, f"wait for {name}", *place),
            )
        operation, wait = pair
        entry = seen.ends.get(call.index)
        seq = entry.seq if entry is not None else None
        is_open, end_ns = _ending(call, entry, call.group in on_device)
        yield TimelineSpan(
            operation,
            call.entered_ns - ahead_ns,
            None if end_ns is None else end_ns - ahead_ns,
            open=is_open,
            seq=seq,
            returned_ns=None if call.returned_ns is None else call.returned_ns - ahead_ns,
            peer=_global(call.peer, operation.members),
            tag=call.tag or 0,
        )
        if call.wait_entered_ns is not None:
            returned = call.wait_returned_ns
            yield TimelineSpan(
                wait,
                call.wait_entered_ns - ahead_ns,
                None if returned is None else returned - ahead_ns,
                open=returned is None,
                seq=seq,
            )


def _ending(
    call: OperationCall, entry: _EntryEnd | None, on_device: bool
) -> tuple[bool, int | None]:
    """True if the operation had not ended, and the time at which it was known to have."""
    if entry is not None and not entry.blocking:
        return not entry.finished, entry.completed_ns if entry.finished else None
    if entry is None and on_device:
        return call.returned_ns is None, None
    done = call.completed or call.failed or call.method == "new_group"
    if call.returned_ns is None or not done:
        return True, None
    return False, call.wait_returned_ns if call.wait_returned_ns is not None else call.returned_ns


def _global(rank_in_group: int | None, members: tuple[int, ...]) -> int | None:
    if rank_in_group is None or not 0 <= rank_in_group < len(members):
        return None
    return members[rank_in_group]


def name_of_method(method: str) -> str:
    """The operation of a process group's method, as users know it."""
    if "reduce_scatter" in method:
        # gloo's entries call it by what it makes of it.
        return "reduce_scatter"
    spec = op_of_method(method)
    return spec.name if spec is not None else method
