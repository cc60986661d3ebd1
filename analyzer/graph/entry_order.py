"""Order in which members of two groups enter an operation of each, where ranks wait crosswise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.launches import other_half
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.stopped_device import channel_rows
from hanglab.analyzer.graph.thresholds import (
    AGREEING_ORDERS,
    COMPARED_MEMBERS,
    MOST_BY_ONE,
    UNLIKELY_AGREEING,
)
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.recorder.case.operations import op_of


def are_own_orders(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if members of both groups of neighbours enter these in orders of their own.

    Two crossed before, and went on, so that such orders do not matter: each group is a stream, and
    the hosts wait for neither alone.  Two who are alone in them may have gone on by luck in how
    their devices took turns.  Where nobody lacks in the ring no host waits in it: then any groups
    that crossed before show that there are such orders, and so do three orders now, which are no
    one rank's fault; but what all but one enter in one order they do not enter in any, unless they
    are few, who may agree by chance, and no round before tells.  Nor do the turns of threads
    matter, of which not all dumps tell.
    """
    ranks = list(cycle.places)
    if all(len(place.group.members) <= len(ranks) for place in cycle.places.values()):
        return False
    complete = is_of_streams(cycle)
    for one, other in pairwise([*ranks, ranks[0]]):
        places = cycle.places[one], cycle.places[other]
        if _are_of_threads(*places):
            return True
        both = sorted(set(places[0].group.members) & set(places[1].group.members))
        if len(both) > COMPARED_MEMBERS:
            both = [one, other]
        lookup.prefetch(both)
        names = {place.group.group.name for place in places}
        found = [_entered(rank, places, None if complete else names, lookup) for rank in both]
        orders = [order for order, _ in found if order]
        before = [{m: row for m, row in o.items() if row < end} for o, end in found]
        free = _of_any_order(before)
        if any(names <= groups for groups in free):
            return True
        fewer, more = _votes(places, orders)
        several = bool(free) or len(_distinct(orders)) > MOST_BY_ONE
        kept = any(names <= {name for name, _ in marks} for marks in before)
        enough = AGREEING_ORDERS if free or kept else UNLIKELY_AGREEING
        parted = fewer > 1 and not who_changed_order(cycle, lookup)
        if complete and (parted or (several and fewer <= 1 and not (fewer and more >= enough))):
            return True
    return False


def who_changed_order(cycle: WaitCycle, lookup: CallLookup) -> tuple[int, ...]:
    """Ranks that enter two groups otherwise than all of both did in the round before; () if none.

    At most half of them: where most go another way, that may be the program's.
    """
    both, changed = _changed_order(cycle, lookup)
    return changed if 2 * len(changed) <= len(both) else ()


def kept_order_alone(rank: int, cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if a rank enters two groups as all of both did before, and others do not."""
    _, changed = _changed_order(cycle, lookup)
    return bool(changed) and rank not in changed


def _changed_order(cycle: WaitCycle, lookup: CallLookup) -> tuple[Sequence[int], tuple[int, ...]]:
    """Ranks of both groups of a ring of two, and those that enter them otherwise than before."""
    if len(cycle.places) != 2:
        return (), ()
    places = tuple(cycle.places.values())
    both = sorted(set(places[0].group.members) & set(places[1].group.members))
    if len(both) > COMPARED_MEMBERS:
        return both, ()
    lookup.prefetch(both)
    orders = {rank: _entered(rank, places, None, lookup)[0] for rank in both}
    now, before = (
        {rank: _comes_first(places, order, ago) for rank, order in orders.items()} for ago in (0, 1)
    )
    if None in (*now.values(), *before.values()) or len({*before.values()}) > 1:
        return both, ()
    return both, tuple(rank for rank in both if now[rank] != before[rank])


def _comes_first(
    places: Sequence[OpenOperation], order: Mapping[_Mark, int], ago: int
) -> bool | None:
    """True if the first of two collectives, so many numbers ago, comes before the other one."""
    marks = [(place.group.group.name, (place.seq or 0) - ago) for place in places]
    first, then = (order.get(mark) for mark in marks)
    return None if first is None or then is None else first < then


def alone_in_order(cycle: WaitCycle) -> int | None:
    """The one rank that came to its operation of a ring of two first, where several did not.

    Whoever went on from the other's, or was dumped before all waited, tells its order as well as
    the one that waits there; who has come to neither, or of whom nothing is known, may come as the
    one did.
    """
    if len(cycle.places) > 2:
        return None
    (one, here), (other, there) = cycle.places.items()
    both = set(here.group.members) & set(there.group.members)
    entered = {rank: (_has_entered(rank, here), _has_entered(rank, there)) for rank in both}
    mine, theirs = (
        {rank for rank, order in entered.items() if order == first}
        for first in ((True, False), (False, True))
    )
    unknown = sum(None in order or not any(order) for order in entered.values())
    if mine == {one} and len(theirs) > 1 + unknown:
        return one
    return other if theirs == {other} and len(mine) > 1 + unknown else None


def _has_entered(rank: int, place: OpenOperation) -> bool | None:
    """True if by its dump, of whichever moment, a rank has entered an operation."""
    progress = place.group.progress.get(rank)
    if progress is None or place.seq is None:
        return None
    if progress.entered is None and progress.part is not None:
        progress = replace(progress, entered=progress.part.entered)
    return progress.has_entered(place.seq)


def have_crossed(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if ranks of a ring entered collectives in different orders before, and went on."""
    places = [*cycle.places.values()]
    found = [_entered(rank, places, None, lookup) for rank in cycle.places]
    return bool(_of_any_order([{m: r for m, r in o.items() if r < end} for o, end in found]))


def _are_of_threads(one: OpenOperation, other: OpenOperation) -> bool:
    """True if a dump shows that its rank entered two operations from two of its threads."""
    threads = (
        {one.waiters[rank].thread, other.waiters[rank].thread} - {""}
        for rank in one.waiters.keys() & other.waiters.keys()
    )
    return any(len(two) > 1 for two in threads)


def _of_any_order(orders: Sequence[dict[_Mark, int]]) -> list[set[str]]:
    """Groups in which ranks enter collectives in any order: such as crossed, directly or not."""
    found: list[set[str]] = []
    for one, other in pairwise(filter(None, orders)):
        for pair in _crossings(one, other):
            apart = [free for free in found if free.isdisjoint(pair)]
            joined = set(pair).union(*(free for free in found if not free.isdisjoint(pair)))
            found = [*apart, joined]
    return found


def _votes(places: Sequence[OpenOperation], orders: Sequence[dict[_Mark, int]]) -> tuple[int, int]:
    """Numbers of ranks that enter two operations in either order, the fewer first."""
    first, then = ((place.group.group.name, place.seq or 0) for place in places)
    before = [one[first] < one[then] for one in orders if first in one and then in one]
    return min(sum(before), len(before) - sum(before)), max(sum(before), len(before) - sum(before))


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
            {mark: row for mark, row in orders.get(rank, {}).items() if mark not in now}
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
                    known = (before.keys() & after.keys()) - {inf}
                    if any(before[seq] != after[seq] for seq in known):
                        continue  # It was harmless before, or one of them has left something out.
                    if _is_short(before, after) or _is_short(after, before):
                        continue  # What has but changed places comes before the next collective.
                    return {rank: message, peer: other}
    return None


def _is_short(mine: dict[float, int], theirs: dict[float, int]) -> bool:
    """True if one has fewer messages before a collective than the other, which has yet to come."""
    latest = max((seq for seq in theirs if seq < inf), default=0)
    return any(latest < seq < inf and count < theirs[inf] for seq, count in mine.items())


def _messages_before(
    rank: int, waiter: int, message: OpenOperation, other: OpenOperation, lookup: CallLookup
) -> dict[float, int]:
    """Count of messages of the channel before each other number of a collective, and of all."""
    entries, pending = lookup.entries(rank), message.waiters[waiter]
    if entries is None or other.seq is None:
        return {inf: 0}
    op = op_of(pending.op)
    messages = channel_rows(entries, pending, message, op.half if rank == waiter else op.other_half)
    mine = entries.in_group(other.group.group.name) & ~entries.is_p2p
    rows = np.flatnonzero(mine & (entries.seq != other.seq))
    counts = np.searchsorted(messages, rows)
    numbers = [*entries.seq[rows].tolist(), inf]
    return dict(zip(numbers, [*counts.tolist(), len(messages)], strict=True))


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


def _crossings(one: dict[_Mark, int], other: dict[_Mark, int]) -> Iterator[tuple[str, str]]:
    """Groups of which two collectives, next to each other in the one, are swapped in the other."""
    common = [mark for mark in one if mark in other]
    for first, then in pairwise(common):
        if other[first] > other[then]:
            yield first[0], then[0]


def _cross(one: dict[_Mark, int], other: dict[_Mark, int]) -> bool:
    """True if two collectives stand in opposite orders in the two."""
    return any(True for _ in _crossings(one, other))


def _distinct(orders: Sequence[dict[_Mark, int]]) -> set[tuple[_Mark, ...]]:
    """Different orders of what all have entered."""
    common = set(orders[0]).intersection(*orders) if orders else set()
    return {tuple(mark for mark in order if mark in common) for order in orders}
