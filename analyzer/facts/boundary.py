"""Joins what the Python boundary saw to a rank's Flight Recorder columns.

Flight Recorder has no roots and no split lists; on gloo it has no
point-to-point either, and it dies with its process.  The boundary's ring, in
the rank's progress file, has all three, but misses what DDP's reducer and
functional collectives issue from C++.  Joined, both make one sequence.

Measured on torch 2.13 with gloo: the number that a group gives before a call,
plus one, is the ``op_id`` of the entry that the call makes, and point-to-point
calls count there but not in ``collective_seq_id``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Entries,
    Frame,
    GroupName,
    Operation,
    RankDump,
    State,
)
from hanglab.recorder.case.backends import backend_of, backends_in
from hanglab.recorder.case.operations import METHODS, MONITORED_BARRIER, op_of_method
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord


def parse_shape(text: str) -> tuple[int, ...] | None:
    """The shape that ``"[4, 8]"`` writes; None if it is not one."""
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        return None
    try:
        return tuple(int(part) for part in inner[1:-1].split(",") if part.strip())
    except ValueError:
        return None


def is_collective(call: OperationCall) -> bool:
    spec = op_of_method(call.method)
    return spec is not None and not spec.p2p


def _is_p2p(call: OperationCall) -> bool:
    spec = op_of_method(call.method)
    return spec is not None and spec.p2p


@dataclass
class _BoundaryEntry:
    """One entry to be, whichever source it comes from."""

    created_ns: int
    group: str
    operation: Operation
    arguments: Arguments
    seq: int
    op_id: int
    state: State
    retired: bool
    is_p2p: bool
    stack: tuple[Frame, ...]
    thread: str
    record_id: int = ABSENT
    pg_id: int = ABSENT
    p2p_seq: int = ABSENT
    started_ns: int = ABSENT
    completed_ns: int = ABSENT
    timeout_ms: int = ABSENT
    duration_ms: float = float("nan")
    #: The rank started it and waits elsewhere, or for nothing.
    posted: bool = False
    #: A thread stands in it, or in a wait for it.
    held: bool = False


def _site(call: OperationCall) -> tuple[Frame, ...]:
    if not call.file:
        return ()
    return (Frame(call.function, call.file, call.line),)


def _finished(call: OperationCall) -> bool:
    return call.completed and not call.failed


def _boundary_arguments(call: OperationCall) -> Arguments:
    shape = parse_shape(call.shape)
    method = METHODS.get(call.method)
    known = method is not None and method.whole_input
    sizes = (shape,) if known and shape is not None else ()
    dtypes = (call.dtype,) if known and call.dtype else ()
    return Arguments(
        input_sizes=sizes,
        input_dtypes=dtypes,
        root=call.root,
        reduce_op=call.reduce_op,
        splits=call.splits,
    )


def _rows_of(entries: Entries) -> list[_BoundaryEntry]:
    rows = []
    for i in range(len(entries)):
        stack = int(entries.stack[i])
        thread = int(entries.thread[i])
        rows.append(
            _BoundaryEntry(
                created_ns=int(entries.created_ns[i]),
                group=entries.group_names[int(entries.group[i])].name,
                operation=entries.operations[int(entries.operation[i])],
                arguments=entries.arguments[int(entries.argument[i])],
                seq=int(entries.seq[i]),
                op_id=int(entries.op_id[i]),
                state=State(int(entries.state[i])),
                retired=bool(entries.retired[i]),
                is_p2p=bool(entries.is_p2p[i]),
                stack=entries.stacks[stack] if stack >= 0 else (),
                thread=entries.threads[thread] if 0 <= thread < len(entries.threads) else "",
                record_id=int(entries.record_id[i]),
                pg_id=int(entries.pg_id[i]),
                p2p_seq=int(entries.p2p_seq[i]),
                started_ns=int(entries.started_ns[i]),
                completed_ns=int(entries.completed_ns[i]),
                timeout_ms=int(entries.timeout_ms[i]),
                duration_ms=float(entries.duration_ms[i]),
            )
        )
    return rows


def _is_held(call: OperationCall) -> bool:
    """True if a thread is in the call, or waits for it."""
    waits = call.wait_entered_ns is not None and call.wait_returned_ns is None
    return call.returned_ns is None or waits


def _posted(calls: Sequence[OperationCall]) -> frozenset[int]:
    """Numbers of the operations that their rank started and does not wait for.

    Nothing but ``Work.wait`` waits for a send or receive of gloo.  A collective has
    futures, too, and waits for those are not recorded; whoever started it in a
    thread that is held in a later call does not wait for it all the same.
    """
    held: dict[int, int] = {}
    for call in calls:
        if _is_held(call):
            held[call.thread_id] = call.index
    return frozenset(
        call.index
        for call in calls
        if call.returned_ns is not None
        and call.wait_entered_ns is None
        and not call.completed
        and not call.failed
        and (_is_p2p(call) or held.get(call.thread_id, -1) > call.index)
    )


def _pairs(
    rows: list[_BoundaryEntry], calls: Sequence[OperationCall]
) -> Iterator[tuple[_BoundaryEntry, OperationCall]]:
    """Rows that were made while a call of the boundary lasted, and that call."""
    by_group: dict[str, list[OperationCall]] = {}
    for call in calls:
        if is_collective(call):
            by_group.setdefault(call.group, []).append(call)
    starts = {name: [c.entered_ns for c in ops] for name, ops in by_group.items()}
    for row in rows:
        ops = by_group.get(row.group)
        if ops is None or row.is_p2p:
            continue
        at = bisect_right(starts[row.group], row.created_ns) - 1
        if at < 0:
            continue
        call = ops[at]
        if call.returned_ns is not None and row.created_ns > call.returned_ns:
            continue
        spec = op_of_method(call.method)
        named = spec is not None and spec.name == row.operation.op
        if backend_of(row.operation.backend).named_by_method and not named:
            continue
        yield row, call


def _annotate(
    rows: list[_BoundaryEntry], calls: Sequence[OperationCall], posted: frozenset[int]
) -> set[int]:
    """Give rows what the boundary knows of them; returns the crossings that found their row."""
    found: set[int] = set()
    for row, call in _pairs(rows, calls):
        found.add(call.index)
        row.arguments = replace(
            row.arguments,
            root=call.root,
            reduce_op=call.reduce_op,
            splits=call.splits,
        )
        if not row.stack:
            row.stack = _site(call)
        row.posted = call.index in posted
        row.held = _is_held(call)
        if _finished(call):
            row.retired = True
        elif call.failed:
            # gloo retires what failed, too
            row.retired = False
    return found


def _with_arguments(dump: RankDump, calls: Sequence[OperationCall]) -> RankDump:
    """Adds the roots, reduce operations and split lists that no buffer has.

    All else a buffer of NCCL knows better: the host's part of an operation tells nothing of
    the device's.
    """
    if dump.entries is None:
        return dump
    rows = _rows_of(dump.entries)
    for row, call in _pairs(rows, calls):
        row.arguments = replace(
            row.arguments, root=call.root, reduce_op=call.reduce_op, splits=call.splits
        )
    if rows:
        dump.entries = _columns(rows, dump.descriptions)
    return dump


def _p2p_before(call: OperationCall, ranks_in_group: int, rank_in_group: int) -> int:
    """Steps that a call moves gloo's counter of operations beyond that of collectives."""
    if _is_p2p(call):
        return 1
    if call.method == MONITORED_BARRIER.name and rank_in_group == 0:
        # It exchanges two messages with everybody, the others with it alone; two are
        # counted as collectives on each.
        return 2 * (ranks_in_group - 1) - 2
    return 0


def _row_of(
    call: OperationCall, rank_in_group: int, seq: int, op_id: int, posted: frozenset[int]
) -> _BoundaryEntry:
    peer = ABSENT if call.peer is None else call.peer
    spec = op_of_method(call.method)
    p2p = spec is not None and spec.p2p
    operation = Operation("gloo", spec.name if spec is not None else call.method)
    if spec is not None and p2p:
        src, dst = (rank_in_group, peer) if spec.sends else (peer, rank_in_group)
        operation = Operation("gloo", spec.name, src, dst, call.tag or 0)
    return _BoundaryEntry(
        created_ns=call.entered_ns,
        group=call.group,
        operation=operation,
        arguments=_boundary_arguments(call),
        seq=seq,
        op_id=op_id,
        state=State.SCHEDULED,
        retired=_finished(call),
        is_p2p=p2p,
        stack=_site(call),
        thread=str(call.thread_id),
        posted=call.index in posted,
        held=_is_held(call),
    )


def _added_rows(
    calls: Sequence[OperationCall],
    found: set[int],
    posted: frozenset[int],
    groups: dict[str, GroupRecord],
    rank: int,
    with_collectives: bool,
    complete: bool,
) -> list[_BoundaryEntry]:
    rows: list[_BoundaryEntry] = []
    unseen: dict[str, int] = {}
    for call in calls:
        group = groups.get(call.group)
        if group is None or rank not in group.ranks:
            continue
        mine = group.ranks.index(rank)
        op_id = ABSENT if call.group_seq is None else call.group_seq + 1
        if _is_p2p(call):
            rows.append(_row_of(call, mine, ABSENT, op_id, posted))
        elif is_collective(call) and with_collectives and call.index not in found:
            # Without the ring's beginning nobody knows how many unseen calls to subtract.
            known = op_id != ABSENT and (complete or not unseen.get(call.group))
            if known:
                seq = op_id - unseen.get(call.group, 0)
                rows.append(_row_of(call, mine, seq, op_id, posted))
        step = _p2p_before(call, len(group.ranks), mine)
        unseen[call.group] = unseen.get(call.group, 0) + step
    return rows


def _columns(rows: list[_BoundaryEntry], names: dict[str, str]) -> Entries:
    groups: dict[str, int] = {}
    operations: dict[Operation, int] = {}
    arguments: dict[Arguments, int] = {}
    stacks: dict[tuple[Frame, ...], int] = {}
    threads: dict[str, int] = {}

    def index(row: _BoundaryEntry) -> tuple[int, int, int, int, int]:
        return (
            groups.setdefault(row.group, len(groups)),
            operations.setdefault(row.operation, len(operations)),
            arguments.setdefault(row.arguments, len(arguments)),
            stacks.setdefault(row.stack, len(stacks)) if row.stack else ABSENT,
            threads.setdefault(row.thread, len(threads)),
        )

    indices = [index(row) for row in rows]

    def ints(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.fromiter(values, dtype=np.int64, count=len(rows))

    return Entries(
        record_id=ints(row.record_id for row in rows),
        pg_id=ints(row.pg_id for row in rows),
        group=ints(i[0] for i in indices).astype(np.int32),
        seq=ints(row.seq for row in rows),
        p2p_seq=ints(row.p2p_seq for row in rows),
        op_id=ints(row.op_id for row in rows),
        operation=ints(i[1] for i in indices).astype(np.int32),
        argument=ints(i[2] for i in indices).astype(np.int32),
        stack=ints(i[3] for i in indices).astype(np.int32),
        state=ints(int(row.state) for row in rows).astype(np.int8),
        retired=np.fromiter((row.retired for row in rows), dtype=np.bool_, count=len(rows)),
        is_p2p=np.fromiter((row.is_p2p for row in rows), dtype=np.bool_, count=len(rows)),
        created_ns=ints(row.created_ns for row in rows),
        started_ns=ints(row.started_ns for row in rows),
        completed_ns=ints(row.completed_ns for row in rows),
        timeout_ms=ints(row.timeout_ms for row in rows),
        duration_ms=np.fromiter(
            (row.duration_ms for row in rows), dtype=np.float64, count=len(rows)
        ),
        thread=ints(i[4] for i in indices).astype(np.int32),
        group_names=[GroupName(name, names.get(name, "")) for name in groups],
        operations=list(operations),
        arguments=list(arguments),
        stacks=list(stacks),
        threads=list(threads),
    )


def _leaves_out_p2p(dump: RankDump | None, groups: Sequence[GroupRecord]) -> bool:
    if dump is not None and dump.entries is not None and len(dump.entries):
        used = [backend_of(operation.backend) for operation in dump.entries.operations]
    else:
        used = [backend for group in groups for backend in backends_in(group.backend)]
    return not all(backend.records_p2p for backend in used)


def join(
    rank: int,
    dump: RankDump | None,
    progress: Progress | None,
    groups: Sequence[GroupRecord],
    source: str,
) -> RankDump | None:
    """One sequence from a rank's dump and its boundary records; None where both are missing.

    Without a dump (a killed or frozen rank) collectives come from the boundary
    too.  Membership comes from ``groups`` wherever the dump has none.
    """
    if dump is None and progress is None:
        return None
    joined = dump if dump is not None else RankDump(rank=rank, source=source)
    joined.sends_known = progress is not None
    if progress is not None:
        joined.steps_begun = tuple(progress.steps)
    for group in groups:
        if group.ranks and not joined.members.get(group.id):
            joined.members[group.id] = tuple(group.ranks)
        joined.descriptions[group.id] = group.description or joined.descriptions.get(group.id, "")
    if "" in joined.members and not joined.members[""]:
        del joined.members[""]
    if progress is None or not progress.operations:
        return joined
    if not _leaves_out_p2p(dump, groups):
        return _with_arguments(joined, progress.operations)
    rows = _rows_of(joined.entries) if joined.entries is not None else []
    posted = _posted(progress.operations)
    found = _annotate(rows, progress.operations, posted)
    complete = progress.operations_total <= len(progress.operations)
    rows += _added_rows(
        progress.operations,
        found,
        posted,
        {group.id: group for group in groups},
        rank,
        with_collectives=dump is None,
        complete=complete,
    )
    rows.sort(key=lambda row: row.created_ns)
    if rows:
        joined.entries = _columns(rows, joined.descriptions)
        joined.posted = frozenset(i for i, row in enumerate(rows) if row.posted)
        joined.held = frozenset(i for i, row in enumerate(rows) if row.held)
    if dump is None:
        joined.partial = True
    return joined
