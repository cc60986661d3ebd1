"""Order in which members of two groups enter an operation of each, where ranks wait crosswise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, starmap

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.launches import other_half
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.stopped_device import channel_rows
from hanglab.analyzer.graph.thresholds import AGREEING_ORDERS, COMPARED_MEMBERS, MOST_BY_ONE
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.recorder.case.operations import op_of


def are_own_orders(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if members of both groups of neighbours enter these in orders of their own.

    Two crossed before, and went on, so that such orders do not matter: each group is a stream, and
    the hosts wait for neither alone.  Two who are alone in them may have gone on by luck in how
    their devices took turns.  Where nobody lacks in the ring no host waits in it: then any groups
    that crossed before show it, and so do three orders now, which are no one rank's fault.
    """
    ranks = list(cycle.places)
    if all(len(place.group.members) <= len(ranks) for place in cycle.places.values()):
        return False
    complete = is_of_streams(cycle)
    for one, other in pairwise([*ranks, ranks[0]]):
        places = cycle.places[one], cycle.places[other]
        both = sorted(set(places[0].group.members) & set(places[1].group.members))
        if len(both) > COMPARED_MEMBERS:
            both = [one, other]
        lookup.prefetch(both)
        names = None if complete else {place.group.group.name for place in places}
        found = [_entered(rank, places, names, lookup) for rank in both]
        orders = [order for order, _ in found if order]
        earlier = [{mark: row for mark, row in o.items() if row < end} for o, end in found if o]
        if any(starmap(_cross, pairwise(earlier))):
            return True
        if complete and len(_distinct(orders)) > MOST_BY_ONE:
            return True
    return False


def have_common_order(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if those in a ring enter its groups in one order, but for where it was closed.

    All others do alike there; or what two have entered since, of both groups, stands in one order.
    """
    ranks = list(cycle.places)
    for one, other in pairwise([*ranks, ranks[0]]):
        places = cycle.places[one], cycle.places[other]
        names = {place.group.group.name for place in places}
        both = sorted(set(places[0].group.members) & set(places[1].group.members))
        if len(names) < 2 or len(both) > COMPARED_MEMBERS:
            return False
        lookup.prefetch(both)
        orders = {rank: _entered(rank, places, names, lookup)[0] for rank in both}
        now = {(place.group.group.name, place.seq) for place in places}
        since = [
            {mark: row for mark, row in orders[rank].items() if mark not in now}
            for rank in (one, other)
        ]
        later = {name for name, _ in since[0].keys() & since[1].keys()}
        alike = any(
            len(orders) > AGREEING_ORDERS
            and len(_distinct([o for r, o in orders.items() if r != rank])) == 1
            for rank in (one, other)
        )
        if not alike and (later < names or _cross(*since)):
            return False
    return True


def is_of_streams(cycle: WaitCycle) -> bool:
    """True if each rank of a ring has issued what the one before it waits in, and nobody lacks."""
    ranks = list(cycle.places)
    return all(
        following in cycle.places[rank].behind for rank, following in pairwise([*ranks, ranks[0]])
    )


def message_crossed(waits: OpenOperations, lookup: CallLookup) -> dict[int, OpenOperation] | None:
    """Two ranks of whom one has put a message behind a collective, the other before it.

    Each with what it waits in.  None where they did so before, and went on, or nobody did.
    """
    for rank in sorted(waits.by_rank):
        for message in waits.first(rank):
            if message.seq is not None or message.peer is None or not message.certain:
                continue
            peer, mine = message.peer, message.waiters[rank]
            theirs = other_half(rank, mine, message, waits)
            if theirs is None:
                continue
            for other in waits.first(peer):
                ends = other.waiters.get(rank), other.waiters[peer]
                if other.seq is None or ends[0] is None or other.absent or other.finished:
                    continue
                threads = {mine.thread, ends[0].thread}, {theirs.thread, ends[1].thread}
                crossed = ends[0].order > mine.order and theirs.order > ends[1].order
                if crossed and all(len(one) == 1 for one in threads):
                    before, after = (
                        _messages_before(one, rank, message, other, lookup) for one in (rank, peer)
                    )
                    if any(before[seq] != after[seq] for seq in before.keys() & after.keys()):
                        continue  # It was harmless before, or one of them has left something out.
                    return {rank: message, peer: other}
    return None


def odd_place(crossed: dict[int, OpenOperation], lookup: CallLookup) -> int | None:
    """The one of two that enters the collective after another count of messages than all.

    None unless all members have come to the one before it after equally many.
    """
    message, other = crossed.values()
    members = other.group.members
    if other.seq is None or len(members) > COMPARED_MEMBERS:
        return None
    lookup.prefetch(members)
    counts = {rank: _all_messages_before(rank, message, other, lookup) for rank in members}
    earlier = {count.get(other.seq - 1) for count in counts.values()}
    if len(earlier) != 1 or earlier <= {None, 0}:
        return None
    now = Counter(count.get(other.seq) for count in counts.values())
    odd = [rank for rank in crossed if now[counts[rank].get(other.seq)] == 1]
    return odd[0] if len(odd) == 1 and len(now) == 2 and len(members) > 2 else None


def odd_end(crossed: dict[int, OpenOperation], lookup: CallLookup) -> int | None:
    """The one of two that is an end of all channels whose counts differ at the collective.

    A program sends as often before a collective of both as the other side receives; where some
    channel between two others keeps to that, messages of this program do not cross collectives.
    """
    message, other = crossed.values()
    members = message.group.members
    if len(members) > COMPARED_MEMBERS or not set(members) <= set(other.group.members):
        return None
    lookup.prefetch(members)
    counts = [_messages_by_peer(rank, message, other, lookup) for rank in members]
    uneven: list[set[int]] = []
    even = 0
    for sender, sent in enumerate(counts):
        for receiver, taken in enumerate(counts):
            if sent is None or taken is None:
                return None
            pair = sent[True, receiver], taken[False, sender]
            if pair[0] != pair[1]:
                uneven.append({members[sender], members[receiver]})
            even += pair[0] == pair[1] != 0
    common = set.intersection(*uneven) if len(uneven) > 1 and even else set()
    return common.pop() if len(common) == 1 and common <= crossed.keys() else None


def _messages_by_peer(
    rank: int, message: OpenOperation, other: OpenOperation, lookup: CallLookup
) -> Counter[tuple[bool, int]] | None:
    """Sends and receives of the one group before the other's collective, by peer in the group.

    None where the ring has lost its beginning, or the rank has not come there.
    """
    entries = lookup.entries(rank)
    if entries is None or other.seq is None or int(entries.record_id[0]) != 0:
        return None
    end = lookup.index_of(rank, other.group.group.name, other.seq)
    if end == ABSENT:
        return None
    mine = (entries.in_group(message.group.group.name) & entries.is_p2p)[:end]
    found: Counter[tuple[bool, int]] = Counter()
    for row in np.flatnonzero(mine).tolist():
        operation = entries.operation_at(row)
        if operation.spec.half:
            found[operation.spec.sends, operation.peer] += 1
    return found


def _all_messages_before(
    rank: int, message: OpenOperation, other: OpenOperation, lookup: CallLookup
) -> dict[int, int]:
    """Count of messages of the other group before each number of a collective."""
    entries = lookup.entries(rank)
    if entries is None or int(entries.record_id[0]) != 0:
        return {}
    of = [entries.in_group(one.group.group.name) for one in (message, other)]
    messages, rows = np.flatnonzero(of[0] & entries.is_p2p), np.flatnonzero(of[1] & ~entries.is_p2p)
    counts = np.searchsorted(messages, rows)
    return dict(zip(entries.seq[rows].tolist(), counts.tolist(), strict=True))


def _messages_before(
    rank: int, waiter: int, message: OpenOperation, other: OpenOperation, lookup: CallLookup
) -> dict[int, int]:
    """Count of messages of the channel before each other number of a collective."""
    entries, pending = lookup.entries(rank), message.waiters[waiter]
    if entries is None or other.seq is None:
        return {}
    op = op_of(pending.op)
    messages = channel_rows(entries, pending, message, op.half if rank == waiter else op.other_half)
    mine = entries.in_group(other.group.group.name) & ~entries.is_p2p
    rows = np.flatnonzero(mine & (entries.seq != other.seq))
    counts = np.searchsorted(messages, rows)
    return dict(zip(entries.seq[rows].tolist(), counts.tolist(), strict=True))


def outvoted(cycle: WaitCycle, lookup: CallLookup) -> tuple[int, ...]:
    """The fewer of those in both groups of a ring of two, by the order in which they entered."""
    if len(cycle.places) != 2:
        return ()
    first, second = cycle.places.values()
    common = sorted(set(first.group.members) & set(second.group.members))
    if len(common) > COMPARED_MEMBERS:
        return ()
    lookup.prefetch(common)
    votes: tuple[list[int], list[int]] = ([], [])
    for rank in common:
        one, other = (_index(rank, operation, lookup) for operation in (first, second))
        if one is None or other is None or one == other:
            continue
        before = other == ABSENT or ABSENT != one < other
        votes[0 if before else 1].append(rank)
    fewer = min(votes, key=len)
    return tuple(fewer) if fewer and len(fewer) < max(map(len, votes)) else ()


def _index(rank: int, operation: OpenOperation, lookup: CallLookup) -> int | None:
    """Index of the rank's entry; ABSENT if it has not come yet, None if nothing tells."""
    progress = operation.group.progress.get(rank)
    assert operation.seq is not None
    entered = progress.has_entered(operation.seq) if progress is not None else None
    if not entered:
        return None if entered is None else ABSENT
    index = lookup.index_of(rank, operation.group.group.name, operation.seq)
    return None if index == ABSENT else index


#: Name of a group, and the number of a collective of it.
_Mark = tuple[str, int]


def _entered(
    rank: int, places: Sequence[OpenOperation], names: set[str] | None, lookup: CallLookup
) -> tuple[dict[_Mark, int], int]:
    """Collectives of the thread that entered one of ``places``, in its order, with their indices.

    Those of groups with these ``names``, or of all; and the index at which it did.
    """
    entries = lookup.entries(rank)
    end = min((p.waiters[rank].index for p in places if rank in p.waiters), default=ABSENT)
    if entries is None or end == ABSENT:
        return {}, ABSENT
    mine = entries.thread == entries.thread[end]
    rows = np.flatnonzero(~entries.is_p2p & (entries.seq > 0) & mine).tolist()
    marks = {(entries.group_at(row), int(entries.seq[row])): row for row in rows}
    return {mark: row for mark, row in marks.items() if names is None or mark[0] in names}, end


def _cross(one: dict[_Mark, int], other: dict[_Mark, int]) -> bool:
    """True if two collectives stand in opposite orders in the two."""
    common = [mark for mark in one if mark in other]
    return any(other[first] > other[then] for first, then in pairwise(common))


def _distinct(orders: Sequence[dict[_Mark, int]]) -> set[tuple[_Mark, ...]]:
    """Different orders of what all have entered."""
    common = set(orders[0]).intersection(*orders) if orders else set()
    return {tuple(mark for mark in order if mark in common) for order in orders}
