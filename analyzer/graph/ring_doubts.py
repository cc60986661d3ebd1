"""Reasons why a ring of waits may be none, or why nothing tells who closed it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, State
from hanglab.analyzer.graph.batches import may_lack_members
from hanglab.analyzer.graph.entry_order import is_of_streams
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.stopped_device import channel_rows
from hanglab.analyzer.graph.thresholds import KNOWN_ROUNDS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of


def may_be_harmless(cycle: WaitCycle) -> bool:
    """True if ranks of which nothing is known may be what two orders of a ring wait for.

    Not where an operation that all have issued does not run: that shows that streams wait for each
    other.
    """
    places = cycle.places.values()
    proved = any(w.behind and not (w.absent or w.unknown or w.finished) for w in places)
    return not proved and any(w.behind and w.unknown for w in places)


def waits_with_others(rank: int, cycle: WaitCycle, waits: OpenOperations) -> bool:
    """True if others, too, have nothing open but what a rank of a ring is in, and lack beside it.

    One of them may have stopped elsewhere; that several did is less likely than that they wait.
    """
    here = cycle.places[rank]
    ranks = list(cycle.places)
    before = cycle.places[ranks[ranks.index(rank) - 1]]
    alike = [
        other for other in here.waiters
        if other in before.absent and len(waits.by_rank[other]) == 1
    ]  # fmt: skip
    return here.seq is not None and before.seq is not None and len(alike) > 1 and rank in alike


def is_of_streams_alone(cycle: WaitCycle) -> bool:
    """True if nobody lacks in a ring, and no buffer tells whether its streams wait for each other.

    All have issued all of it, and differ in the order: harmless, unless one stream waits for
    another, and earlier rounds, which would show that, were left out.  A device may have stopped.
    """
    parts = [
        progress.part if (progress := place.group.progress.get(rank)) else None
        for rank, place in cycle.places.items()
    ]
    return is_of_streams(cycle) and all(part and part.active_only for part in parts)


def is_level(cycle: WaitCycle) -> bool:
    """True if all ranks of a ring have entered equally many calls of each of its groups."""
    groups = [place.group for place in cycle.places.values()]
    entered = {
        tuple(one.entered if (one := group.progress.get(rank)) else None for group in groups)
        for rank in cycle.places
    }
    return len(entered) == 1


def is_of_queues_alone(cycle: WaitCycle) -> bool:
    """True if no message of a ring lacks its other half, and each is behind one of another group.

    These have streams of their own.  Whether one stream waits for another no buffer tells, so a
    device may have stopped.
    """
    places = [*cycle.places.values()]
    return is_of_streams(cycle) and all(
        one.group is not other.group for one, other in pairwise([*places, places[0]])
    )


def is_of_one_rank(cycle: WaitCycle, waits: OpenOperations, lookup: CallLookup) -> bool:
    """True if a ring of messages has members that are none of the ends of what closed it.

    Where all wait to send, or all to receive, the program makes the ring, unless it made these
    calls before and went on.  Else one of them is out of turn, nobody knows which, and of four or
    more some neither are it nor wait for it.  None is where all have sent and received in one order
    from the first on.
    """
    if len({op_of(place.op).sends for place in cycle.places.values()}) > 1:
        return len(cycle.places) > 3
    return (
        len(cycle.places) > 2
        and all(_was_ended_before(r, place, waits, lookup) for r, place in cycle.places.items())
        and not _have_one_order(cycle, lookup)
    )


def _have_one_order(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if all of a ring have sent and received in the same order, from the first message on."""
    orders = set()
    for rank, place in cycle.places.items():
        entries, progress = lookup.entries(rank), place.group.progress.get(rank)
        counted = progress is not None and progress.part is not None and progress.part.counted
        if entries is None or not counted:
            return False
        sends = np.array([op_of(one.op).sends for one in entries.operations], dtype=np.bool_)
        mine = entries.in_group(place.group.group.name) & entries.is_p2p
        orders.add(tuple(sends[entries.operation[mine]].tolist()))
    return len(orders) == 1


def _was_ended_before(
    rank: int, place: OpenOperation, waits: OpenOperations, lookup: CallLookup
) -> bool:
    """True if a rank has ended the like of what it waits in, from the same line, a few times."""
    entries, index = lookup.entries(rank), place.waiters[rank].index
    if entries is None or index == ABSENT:
        return False
    open_ = {pending.index for pending, _ in waits.by_rank[rank]}
    columns = (entries.operation, entries.group, entries.stack)
    like = np.logical_and.reduce([one[:index] == one[index] for one in columns])
    return len(set(np.flatnonzero(like).tolist()) - open_) >= KNOWN_ROUNDS


def any_left_out(cycle: WaitCycle) -> bool:
    """True if a message of a ring may have its other half, which a dump of what is open lacks."""
    return any(
        place.seq is None
        and not place.certain
        and (progress := place.group.progress.get(rank)) is not None
        and progress.part is not None
        and progress.part.active_only
        for rank, place in cycle.places.items()
    )


def any_come_unseen(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if a message may have its other half: its peer has ended more than the rank still shows.

    Sends may end before they are taken, and what they were taken by may be lost.
    """
    for rank, place in cycle.places.items():
        if place.seq is not None or place.certain or place.peer is None:
            continue
        pending = place.waiters[rank]
        op = op_of(pending.op)
        mine = _ended_messages(lookup.entries(rank), pending, place, op.half)
        if _ended_messages(lookup.entries(place.peer), pending, place, op.other_half) > mine:
            return True
    return False


def _ended_messages(
    entries: Entries | None, pending: Pending, place: OpenOperation, half: str
) -> int:
    if entries is None:
        return 0
    rows = channel_rows(entries, pending, place, half)
    return int((entries.retired[rows] | (entries.state[rows] == State.COMPLETED)).sum())


def any_of_a_batch(
    cycle: WaitCycle, waits: OpenOperations, merged: MergedSummaries, lookup: CallLookup
) -> bool:
    """True if a rank waits in a batch for several peers, and nothing tells whose half lacks."""
    for rank, waiting in cycle.places.items():
        if waiting.seq is None and not waiting.certain:
            order = waiting.waiters[rank].order
            batch = [w for p, w in waits.by_rank[rank] if p.order == order and not w.exchanged]
            if len({w.peer for w in batch}) > 1:
                return True
            if may_lack_members((rank, order), waits, merged, lookup):
                return True
    return False
