"""Joins what the Python boundary saw to a rank's Flight Recorder columns.

Flight Recorder has no roots and, before 2.11, no split lists; on gloo it has no
point-to-point either, and it dies with its process.  The boundary's ring, in
the rank's progress file, has all three, but misses what DDP's reducer and
functional collectives issue from C++.  Joined, both make one sequence.

Measured on torch 2.13 with gloo: the number that a group gives before a call,
plus one, is the ``op_id`` of the entry that the call makes, and point-to-point
calls count there but not in ``collective_seq_id``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hanglab.analyzer.facts.boundary_generations import calls_by_generation
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
from hanglab.analyzer.flight_recorder.concatenation import concatenated, reordered
from hanglab.analyzer.flight_recorder.interning import intern
from hanglab.recorder.case.backends import backend_of, backends_in
from hanglab.recorder.case.operations import METHODS, MONITORED_BARRIER, OPERATIONS, op_of_method
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord

#: A row of the entries, and the call of the boundary during which it was made.
_Pair = tuple[int, OperationCall]
#: A call that no entry tells of, its collective's number and its number of any kind.
_Unrecorded = tuple[OperationCall, int, int]


def is_collective(call: OperationCall) -> bool:
    spec = op_of_method(call.method)
    return spec is not None and not spec.p2p


def _is_p2p(call: OperationCall) -> bool:
    spec = op_of_method(call.method)
    return spec is not None and spec.p2p


def _site(call: OperationCall) -> tuple[Frame, ...]:
    if not call.file:
        return ()
    return (Frame(call.function, call.file, call.line),)


def _finished(call: OperationCall) -> bool:
    return call.completed and not call.failed


def _boundary_arguments(call: OperationCall) -> Arguments:
    method = METHODS.get(call.method)
    known = method is not None and method.whole_input
    sizes = (call.shape,) if known and call.shape is not None else ()
    dtypes = (call.dtype,) if known and call.dtype else ()
    return Arguments(
        input_sizes=sizes,
        input_dtypes=dtypes,
        root=call.root,
        reduce_op=call.reduce_op,
        splits=call.splits,
    )


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


def _pairs(entries: Entries, calls: Sequence[OperationCall]) -> Iterator[_Pair]:
    """Rows that were made while a call of the boundary lasted, and that call."""
    by_group: dict[str, list[OperationCall]] = {}
    for call in calls:
        if is_collective(call):
            by_group.setdefault(call.group, []).append(call)
    for number, group in enumerate(entries.group_names):
        made = by_group.get(group.name)
        if made is None:
            continue
        rows = np.flatnonzero((entries.group == number) & ~entries.is_p2p)
        starts = np.array([call.entered_ns for call in made], dtype=np.int64)
        places = np.searchsorted(starts, entries.created_ns[rows], side="right") - 1
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            call = made[place]
            late = call.returned_ns is not None and entries.created_ns[row] > call.returned_ns
            if place >= 0 and not late and _may_name(entries.operation_at(row), call):
                yield row, call


def called_as(entries: Entries, progress: Progress) -> Iterator[tuple[int, str]]:
    """Rows of a buffer that were made within a call of the boundary, and the operation it is.

    gloo makes its own of some: a reduce_scatter stands in its buffer as an all_reduce.
    """
    for row, call in _pairs(entries, progress.operations):
        own, made = OPERATIONS.get(call.method), op_of_method(call.method)
        if own is not None:
            yield row, own.usual_name or own.name
        elif made is not None:
            yield row, made.name


def _may_name(operation: Operation, call: OperationCall) -> bool:
    """True unless entries of the backend are named by the method, and this one by another."""
    spec = op_of_method(call.method)
    named = spec is not None and spec.name == operation.op
    return named or not backend_of(operation.backend).named_by_method


def _with_arguments(entries: Entries, pairs: Sequence[_Pair]) -> Entries:
    """Adds roots and reduce operations, which no buffer has, and split lists where it has none."""
    argument, arguments = entries.argument.copy(), list(entries.arguments)
    places: dict[Arguments, int] = {}
    for row, call in pairs:
        mine = entries.arguments[argument[row]]
        splits = mine.splits if call.splits is None else call.splits
        whole = replace(mine, root=call.root, reduce_op=call.reduce_op, splits=splits)
        argument[row] = places.setdefault(whole, len(arguments))
        if argument[row] == len(arguments):
            arguments.append(whole)
    return replace(entries, argument=argument, arguments=arguments)


def _with_ends(entries: Entries, pairs: Sequence[_Pair]) -> Entries:
    """Adds where a call was made, and how it ended, as far as the boundary knows."""
    stack, stacks = entries.stack.copy(), list(entries.stacks)
    retired = entries.retired.copy()
    for row, call in pairs:
        if call.file and (stack[row] == ABSENT or not stacks[stack[row]]):
            stack[row] = len(stacks)
            stacks.append(_site(call))
        if call.completed or call.failed:
            # gloo retires what failed, too
            retired[row] = not call.failed
    return replace(entries, stack=stack, stacks=stacks, retired=retired)


def _p2p_before(call: OperationCall, ranks_in_group: int, rank_in_group: int) -> int:
    """Steps that a call moves gloo's counter of operations beyond that of collectives."""
    if _is_p2p(call):
        return 1
    if call.method == MONITORED_BARRIER.name and rank_in_group == 0:
        # It exchanges two messages with everybody, the others with it alone; two are
        # counted as collectives on each.
        return 2 * (ranks_in_group - 1) - 2
    return 0


def _operation(call: OperationCall, rank_in_group: int) -> Operation:
    spec = op_of_method(call.method)
    if spec is None or not spec.p2p:
        return Operation("gloo", call.method if spec is None else spec.name)
    peer = ABSENT if call.peer is None else call.peer
    src, dst = (rank_in_group, peer) if spec.sends else (peer, rank_in_group)
    return Operation("gloo", spec.name, src, dst, call.tag or 0)


def _collectives_before(entries: Entries | None, call: OperationCall) -> tuple[int, int] | None:
    """Of the group's last collective in the buffer before a call: its number of any kind.

    The second is by how much that is beyond its number among collectives.  Both are 0 where the
    group had none yet; None where the buffer no longer has it.
    """
    if entries is None:
        return 0, 0
    groups = [n for n, group in enumerate(entries.group_names) if group.name == call.group]
    rows = np.flatnonzero(np.isin(entries.group, groups) & ~entries.is_p2p)
    before = rows[entries.created_ns[rows] < call.entered_ns]
    if len(before):
        last = before[np.argmax(entries.op_id[before])]
        return int(entries.op_id[last]), int(entries.op_id[last] - entries.seq[last])
    # Whoever has dropped entries may have had some before.
    return (0, 0) if not len(rows) or entries.record_id.min() <= 0 else None


def _unrecorded(
    calls: Sequence[OperationCall],
    groups: dict[str, GroupRecord],
    rank: int,
    ring: Entries | None,
    complete: bool,
    with_collectives: bool,
) -> Iterator[_Unrecorded]:
    """Calls of gloo that have no entry."""
    unseen: dict[str, int] = {}
    steps: dict[str, list[tuple[int, int]]] = {}
    for call in calls:
        group = groups.get(call.group)
        if group is None or rank not in group.ranks:
            continue
        op_id = ABSENT if call.group_seq is None else call.group_seq + 1
        if _is_p2p(call):
            yield call, ABSENT, op_id
        elif is_collective(call) and with_collectives:
            # Without the ring's beginning nobody knows how many unseen calls to subtract.
            if op_id != ABSENT and (complete or not unseen.get(call.group)):
                yield call, op_id - unseen.get(call.group, 0), op_id
        elif call.method == MONITORED_BARRIER.name and op_id != ABSENT:
            known = _collectives_before(ring, call)
            if known is not None and (known[0] or complete):
                since = sum(step for at, step in steps.get(call.group, ()) if at > known[0])
                # Of the two numbers that it takes on every rank, the first.
                yield call, op_id - known[1] - since, op_id
        step = _p2p_before(call, len(group.ranks), group.ranks.index(rank))
        unseen[call.group] = unseen.get(call.group, 0) + step
        if step and op_id != ABSENT:
            steps.setdefault(call.group, []).append((op_id, step))


def _entries_of(
    made: Sequence[_Unrecorded],
    groups: dict[str, GroupRecord],
    rank: int,
    descriptions: dict[str, str],
    threads_of_ring: Sequence[str],
) -> Entries:
    """Entries as gloo's buffer would have them."""
    # There a thread has a name as well, and its id (of pthread_self, too) comes last.
    named = {name.rpartition(" ")[2]: name for name in threads_of_ring}
    calls = [call for call, _, _ in made]
    group, names = intern([call.group for call in calls])
    operation, operations = intern(
        [_operation(call, groups[call.group].ranks.index(rank)) for call in calls]
    )
    argument, arguments = intern([_boundary_arguments(call) for call in calls])
    stack, stacks = intern([_site(call) for call in calls])
    stack[[not call.file for call in calls]] = ABSENT
    thread, threads = intern(
        [named.get(str(call.thread_id), str(call.thread_id)) for call in calls]
    )
    absent = np.full(len(calls), ABSENT, dtype=np.int64)
    return Entries(
        record_id=absent,
        pg_id=absent,
        group=group,
        seq=np.array([seq for _, seq, _ in made], dtype=np.int64),
        p2p_seq=absent,
        op_id=np.array([op_id for _, _, op_id in made], dtype=np.int64),
        operation=operation,
        argument=argument,
        stack=stack,
        state=np.full(len(calls), State.SCHEDULED, dtype=np.int8),
        retired=np.array([_finished(call) for call in calls], dtype=np.bool_),
        is_p2p=np.array([_is_p2p(call) for call in calls], dtype=np.bool_),
        created_ns=np.array([call.entered_ns for call in calls], dtype=np.int64),
        started_ns=absent,
        completed_ns=absent,
        timeout_ms=absent,
        duration_ms=np.full(len(calls), np.nan),
        thread=thread,
        group_names=[GroupName(name, descriptions.get(name, "")) for name in names],
        operations=operations,
        arguments=arguments,
        stacks=stacks,
        threads=threads,
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
    joined.boundary_only = dump is None
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
    pairs: list[_Pair] = []
    calls: Sequence[OperationCall] = progress.operations
    if _leaves_out_p2p(dump, groups):
        calls = calls_by_generation(joined, calls)
    if joined.entries is not None:
        pairs += _pairs(joined.entries, calls)
        names = joined.descriptions
        joined.entries = _with_arguments(joined.entries, pairs)
        joined.entries.group_names = [
            GroupName(group.name, names.get(group.name, "")) for group in joined.entries.group_names
        ]
    # All else a buffer of NCCL knows better: the host's part of an operation tells nothing of
    # the device's.
    if _leaves_out_p2p(dump, groups):
        complete = progress.operations_total <= len(progress.operations)
        _add_calls(joined, calls, complete, _by_name(groups, joined), pairs, dump is None)
    if dump is None:
        joined.partial = True
    return joined


def _by_name(groups: Sequence[GroupRecord], joined: RankDump) -> dict[str, GroupRecord]:
    """Records of groups, those of former generations as they were the last time."""
    found = {group.id: group for group in groups}
    return found | {own: found[name] for own, name in joined.former.items() if name in found}


def _add_calls(
    joined: RankDump,
    called: Sequence[OperationCall],
    complete: bool,
    groups: dict[str, GroupRecord],
    pairs: Sequence[_Pair],
    with_collectives: bool,
) -> None:
    """Give the entries the ends of calls, and one to each call that has none."""
    ring = joined.entries
    made = list(_unrecorded(called, groups, joined.rank, ring, complete, with_collectives))
    threads = ring.threads if ring is not None else ()
    parts = [_entries_of(made, groups, joined.rank, joined.descriptions, threads)]
    if ring is not None:
        parts.insert(0, _with_ends(ring, pairs))
    entries = concatenated(parts)
    if not len(entries):
        return
    order = np.argsort(entries.created_ns, kind="stable")
    joined.entries = reordered(entries, order)
    places = np.argsort(order)
    first = len(entries) - len(made)
    calls = [*pairs, *((first + row, call) for row, (call, _, _) in enumerate(made))]
    posted = _posted(called)
    joined.posted = frozenset(int(places[row]) for row, call in calls if call.index in posted)
    joined.held = frozenset(int(places[row]) for row, call in calls if _is_held(call))
