"""Operations that each rank of a ring owed the one before it, by its own earlier rounds.

In a ring a rank waits in one operation and owes another.  How it did these two before tells
whether it left out what it owes, and whether its host used to go on to it without waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Int64
from hanglab.analyzer.graph.batches import batched_entries
from hanglab.analyzer.graph.message_rounds import has_known_rounds
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.thresholds import (
    CLOCK_MARGIN_NS,
    COMPARED_ROUNDS,
    KNOWN_ROUNDS,
    SWAPPED_OPERATIONS,
)
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.recorder.case.operations import op_of


class OwedOrder(Enum):
    """A rank's order of what it waits in and what it owes, against its earlier rounds."""

    #: What it owes comes next.
    IN_ORDER = "in_order"
    #: What it owes should have come before what it waits in.
    LATE = "late"
    #: It has finished more since than ever between two of what it owes.
    LEFT_OUT = "left_out"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Owed:
    """``rank`` waits in ``waiting`` and owes its half of, or its part in, ``missed``."""

    rank: int
    waiting: OpenOperation
    #: The rank before it in the ring, and the operation in which that one waits for it.
    waiter: int
    missed: OpenOperation
    order: OwedOrder
    #: True where it used to go on before what it waits in could have finished, False where
    #: never; None where its earlier rounds do not tell.
    goes_on: bool | None = None
    #: It has come round before, so that its order is no next phase of a schedule.
    known: bool = False


def owed_operations(cycle: WaitCycle, lookup: CallLookup) -> list[Owed]:
    """Operations that each rank of a ring owes the one that waits for it."""
    ranks = list(cycle.places)
    found = []
    for number, rank in enumerate(ranks):
        waiter, awaited = ranks[number - 1], ranks[(number + 1) % len(ranks)]
        waiting, missed = cycle.places[rank], cycle.places[waiter]
        mine = _rows(lookup.entries(rank), waiting, rank)
        due = _rows(lookup.entries(rank), missed, rank, counterpart=True)
        if mine is None or due is None:
            found.append(Owed(rank, waiting, waiter, missed, OwedOrder.UNKNOWN))
            continue
        pending = waiting.waiters[rank]
        entries = lookup.entries(rank)
        assert entries is not None
        # In a batch the order says nothing of the one in which calls of their own are made.
        marks = batched_entries(entries)
        mine, due = (rows[marks[rows] == marks[pending.index]] for rows in (mine, due))
        if not pending.overtaken:
            due = due[due < pending.index]
        order = _order(mine, due, pending.index)
        late = order in (OwedOrder.LATE, OwedOrder.LEFT_OUT)
        known = pending.seq is not None or has_known_rounds(entries, pending.index)
        if late and _is_new_line(entries, mine[mine < due[-1]], pending.index):
            order = OwedOrder.UNKNOWN  # A schedule of messages may have come to its next phase.
        went_on = order is OwedOrder.LATE and _went_on(entries, due, pending.index)
        if went_on or order is OwedOrder.LEFT_OUT:
            further = _is_further(entries, due, pending.index, waiter, missed, lookup)
            order = OwedOrder.LEFT_OUT if further else OwedOrder.UNKNOWN
        goes_on = None
        if order is OwedOrder.IN_ORDER:
            served = _rows(lookup.entries(awaited), waiting, awaited, counterpart=True)
            goes_on = _goes_on(
                lookup.entries(rank), mine, due, lookup.entries(awaited), served, pending.index
            )
        found.append(Owed(rank, waiting, waiter, missed, order, goes_on, known))
    return found


def was_passed_before(owed: list[Owed]) -> bool:
    """True if all ranks of a ring stand where they stood in each earlier round, and went on.

    Who has issued what it owes is held up by its device, which may have been luck before; and if
    all hosts are known to wait there, they are what holds each other up.
    """
    if all(one.waiting.waiters[one.rank].held for one in owed):
        return False
    return all(one.order is OwedOrder.IN_ORDER and one.rank in one.missed.absent for one in owed)


def host_that_stopped(owed: list[Owed]) -> int | None:
    """The one rank of a ring that goes on without what it seems to wait for.

    All keep their order, and in earlier rounds none of the others went on before what it
    waited for was there: so the ring was never closed, and is not now.
    """
    if not was_passed_before(owed) or any(one.goes_on is None for one in owed):
        return None
    going = [one.rank for one in owed if one.goes_on]
    return going[0] if len(going) == 1 else None


def left_out_by_one(owed: list[Owed], waits: OpenOperations, lookup: CallLookup) -> Owed | None:
    """The one rank of a ring that has left out what it owes; None unless it alone did."""
    late = [one for one in owed if one.order in (OwedOrder.LATE, OwedOrder.LEFT_OUT)]
    if len(late) == 1 and late[0].order is OwedOrder.LEFT_OUT and late[0].known:
        return late[0]
    if late:
        return None
    passed = [one for one in owed if _passed(one, waits, lookup)]
    return passed[0] if len(passed) == 1 else None


def _passed(owed: Owed, waits: OpenOperations, lookup: CallLookup) -> bool:
    """True if several wait for the rank and since then finished much in which it took part."""
    if owed.missed.seq is None or owed.rank not in owed.missed.absent:
        return False
    since = 0
    for waiter, pending in owed.missed.waiters.items():
        entries = lookup.entries(waiter)
        if entries is None or pending.index == ABSENT or not pending.overtaken:
            return False
        still_open = {one.index for one, _ in waits.by_rank[waiter]}
        later = entries.in_group(owed.waiting.group.group.name)[pending.index + 1 :]
        rows = (np.flatnonzero(later) + pending.index + 1).tolist()
        common = sum(row not in still_open for row in rows)
        since = min(since or common, common)
    return len(owed.missed.waiters) > 1 and since >= SWAPPED_OPERATIONS


def _rows(
    entries: Entries | None,
    operation: OpenOperation,
    rank: int,
    *,
    counterpart: bool = False,
) -> Int64 | None:
    """Entries of ``rank`` that are like ``operation``, or its other half, by their index."""
    if entries is None:
        return None
    pending = next(iter(operation.waiters.values()))
    if not counterpart and rank in operation.waiters:
        pending = operation.waiters[rank]
    if pending.index == ABSENT:
        return None
    op = pending.op
    if operation.seq is None and counterpart:
        op = op_of(op).other_half
    ends = (pending.src, pending.dst)
    fitting = [
        number
        for number, one in enumerate(entries.operations)
        if one.op == op
        and (operation.seq is not None or (one.src, one.dst) in (ends, (ABSENT, ends[1])))
    ]
    of_group = entries.in_group(operation.group.group.name)
    found: Int64 = np.flatnonzero(np.isin(entries.operation, fitting) & of_group)
    return found


def _order(mine: Int64, due: Int64, index: int) -> OwedOrder:
    """The order of the entry at ``index``, one of ``mine``, against what is ``due``."""
    if len(due) < KNOWN_ROUNDS or not bool((mine == index).any()):
        return OwedOrder.UNKNOWN
    # How often it did the one between two of the other.
    places = np.searchsorted(mine, due)
    runs = np.diff(places)
    run = int(np.searchsorted(mine, index)) + 1 - int(places[-1])
    if int((runs > 0).sum()) < KNOWN_ROUNDS:
        # All of the one came before all of the other: nothing tells how long a run may be.
        return OwedOrder.UNKNOWN
    # Ahead of the first due, too, a job may begin with as many, in a pipeline that fills.
    longest = max(int(runs.max()), int(places[0]))
    if run - 1 > longest:
        return OwedOrder.LEFT_OUT
    if run > longest:
        return OwedOrder.LATE
    return OwedOrder.IN_ORDER if run <= int(runs.min()) else OwedOrder.UNKNOWN


def _is_new_line(entries: Entries, earlier: Int64, index: int) -> bool:
    """True if the rank made its ``earlier`` calls from other lines than that with ``index``.

    Or if nobody knows from which.
    """
    stack = int(entries.stack[index])
    return stack == ABSENT or bool((entries.stack[earlier] != stack).all())


def _went_on(entries: Entries, due: Int64, index: int) -> bool:
    """True if the thread has finished more since the last ``due`` than ever between two of them.

    What only comes later than usual has nothing of a further round before it.
    """
    thread = np.flatnonzero(entries.thread == entries.thread[index])
    finished = np.searchsorted(thread[entries.retired[thread]], np.append(due, index))
    *before, since = np.diff(finished)
    return bool(since > max(before, default=since))


def _is_further(
    entries: Entries,
    due: Int64,
    index: int,
    waiter: int,
    missed: OpenOperation,
    lookup: CallLookup,
) -> bool:
    """True if a rank has called more since the last ``due`` than who waits for it did before.

    What both did in between, such as to evaluate, puts the one no further than the other.
    """
    theirs, pending = lookup.entries(waiter), missed.waiters[waiter]
    rows = _rows(theirs, missed, waiter)
    rows = None if rows is None else rows[rows < pending.index]
    if theirs is None or rows is None or min(len(rows), len(due)) < KNOWN_ROUNDS:
        return True

    def between(one: Entries, first: int, last: int) -> int:
        return int((one.thread[first + 1 : last] == one.thread[last]).sum())

    usual = [between(one, *map(int, at[-2:])) for one, at in ((entries, due), (theirs, rows))]
    since = between(entries, int(due[-1]), index), between(theirs, int(rows[-1]), pending.index)
    # A server makes more calls in a round than who asks it.
    return usual[0] != usual[1] or since[0] > since[1]


def _goes_on(
    entries: Entries | None,
    mine: Int64,
    due: Int64,
    theirs: Entries | None,
    served: Int64 | None,
    index: int,
) -> bool | None:
    """True if a rank did what was ``due`` before the other half of ``mine`` was issued, twice."""
    if entries is None or theirs is None or served is None:
        return None
    number = int(np.searchsorted(mine, index))
    before: list[bool] = []
    for back in range(1, min(COMPARED_ROUNDS, number, len(served)) + 1):
        after = due[due > mine[number - back]]
        if not len(after):
            continue
        left = int(entries.created_ns[after[0]])
        came = int(theirs.created_ns[served[len(served) - back]])
        finished = int(entries.completed_ns[mine[number - back]])
        if left <= 0 or came <= 0 or finished < came or abs(left - came) < CLOCK_MARGIN_NS:
            # Clocks of two hosts: where one finishes what the other has yet to issue, they lie.
            return None
        before.append(left < came)
    if len(before) < KNOWN_ROUNDS or 0 < sum(before) < KNOWN_ROUNDS:
        return None
    return any(before)
