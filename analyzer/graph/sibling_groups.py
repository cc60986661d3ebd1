"""Groups beside one in which two sides differ, which run the same part of the program.

Tensor-parallel groups of one job make the same calls under the same numbers.  Where as many of one
group made a call as went on from it, what all members of others made tells who is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.thresholds import (
    AGREEING_COUNTS,
    COMPARED_COLLECTIVES,
    COMPARED_MEMBERS,
    LONG_PAST,
    SIBLING_GROUPS,
)
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.matching.group_names import NO_DESCRIPTION
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.analyzer.matching.signatures import call_site

#: What tells calls apart: the operation, or the line from which it is called.
_Kind = object
#: By name and number of a call of another group the group's last call before it.
_Marks = dict[tuple[str, int], int]
#: Beyond all numbers.
_LATEST = 1 << 62


def settle_by_siblings(divergence: Divergence, group_table: GroupTable, lookup: CallLookup) -> None:
    """Let groups of the same description tell the right one of two calls from different lines.

    Only what members were in step with: a branch on the data, or another stage of a pipeline, makes
    a group call otherwise by right.  Where they contradict the majority of the group, nobody is.
    """
    group = next(one for one in group_table.groups if one.group == divergence.group)
    by_line = divergence.difference is Difference.CALL_SITE
    if not by_line and divergence.difference is not Difference.OPERATION:
        return
    if len(group.members) > COMPARED_MEMBERS:
        return
    sides = {rank: _kind_of(call, by_line) for rank, call in divergence.calls.items()}
    kinds = set(sides.values())
    if len(kinds) != 2 or None in kinds:
        return
    marks = {rank: _marks(rank, group, divergence.seq, lookup) for rank in sides}
    right: _Kind = None
    then: set[tuple[str, object] | None] = set()
    for sibling in islice(_siblings(group, group_table.groups), SIBLING_GROUPS):
        lookup.prefetch(sibling.members)
        first = min(sibling.members)
        # Ranks of one place in their groups share others; all share those of the whole job.
        asked = {first, *(_counterpart(rank, group, sibling) for rank in marks)}
        theirs = [_marks(rank, sibling, divergence.seq, lookup) for rank in sorted(asked)]
        in_step = all(any(_are_in_step(m, one) for one in theirs) for m in marks.values())
        if not in_step and any(m.keys() & one.keys() for m in marks.values() for one in theirs):
            continue
        made = _made_by_all(sibling, divergence.seq, lookup, by_line)
        if made is None:
            continue
        if not in_step:
            if divergence.deviating:
                continue  # Most of the group tell more than what others did before.
            past = _past(first, sibling, divergence.seq, lookup)
            known = {(op, site) if by_line else op for op, site in past.values()}
            # That a group goes on as before says nothing of what is new to another.
            if (made in known and not kinds <= known) or not all(
                _are_alike_so_far(_past(r, group, divergence.seq, lookup), past) for r in sides
            ):
                continue
        if made not in kinds or right not in (None, made):
            return
        right = made
        following = [lookup.collective(r, sibling, divergence.seq + 1) for r in sibling.members]
        then |= {None if call is None else (call.op, call_site(call.stack)) for call in following}
    if right is None and not divergence.deviating:
        _settle_by_counts(divergence, group, marks, group_table, lookup)
    odd = tuple(sorted(rank for rank, kind in sides.items() if kind != right))
    if right is None or odd == divergence.deviating:
        return
    if divergence.deviating:
        divergence.deviating, divergence.candidates = (), tuple(sorted(sides))
        divergence.skipped, divergence.contradicted = False, True
    else:
        divergence.deviating, divergence.candidates = odd, ()
        now = [divergence.calls[rank] for rank in odd]
        divergence.skipped = {(call.op, call_site(call.stack)) for call in now} == then


def _counterpart(rank: int, group: ResolvedGroup, sibling: ResolvedGroup) -> int:
    """The member of a group in the same place, which shares other groups with a rank."""
    place = group.members.index(rank)
    same = len(sibling.members) == len(group.members)
    return sibling.members[place] if same else min(sibling.members)


def _settle_by_counts(
    divergence: Divergence,
    group: ResolvedGroup,
    marks: Mapping[int, _Marks],
    group_table: GroupTable,
    lookup: CallLookup,
) -> None:
    """Accuse the one rank that came to calls that it shares with others behind more, or fewer.

    Members of sibling groups came to them behind as many calls of theirs as all other ranks of this
    one, each of which shares such with several.
    """
    siblings: list[_Marks] = []
    for sibling in islice(_siblings(group, group_table.groups), SIBLING_GROUPS):
        lookup.prefetch(sibling.members)
        siblings += [_marks(rank, sibling, _LATEST, lookup) for rank in sibling.members]
    ahead = {
        rank: [by for one in siblings if (by := _is_ahead(mine, one)) is not None]
        for rank, mine in marks.items()
    }
    odd = [rank for rank, found in ahead.items() if found and 0 not in found]
    kept = [rank for rank, found in ahead.items() if found and not any(found)]
    if len(odd) != 1 or len(odd) + len(kept) < len(marks) or len({*ahead[odd[0]]}) > 1:
        return
    if min(map(len, ahead.values())) >= AGREEING_COUNTS:
        divergence.deviating, divergence.candidates = (odd[0],), ()
        divergence.skipped = ahead[odd[0]][0] < 0


def _is_ahead(mine: _Marks, theirs: _Marks) -> int | None:
    """Calls of its group that a rank has more than another one of its own, at the last they share.

    None where they share none.
    """
    shared = mine.keys() & theirs.keys()
    latest = {name: max(number for one, number in shared if one == name) for name, _ in shared}
    found = {mine[mark] - theirs[mark] for mark in latest.items()}
    return found.pop() if len(found) == 1 else None


def odd_beside_siblings(
    cycle: WaitCycle, groups: Sequence[ResolvedGroup], lookup: CallLookup
) -> int | None:
    """The one of two that wait for each other which came to their groups in an order of its own.

    Other members of the larger group made the call of its number, and that of the smaller group's
    number in a group of the same description, in the order of its peer, all of them.
    """
    if len(cycle.places) != 2 or any(place.seq is None for place in cycle.places.values()):
        return None
    (in_one, one), (in_other, other) = sorted(
        cycle.places.items(), key=lambda item: -len(item[1].group.members)
    )
    if not set(other.group.members) < set(one.group.members):
        return None
    assert one.seq is not None and other.seq is not None
    made = lookup.collective(in_other, other.group, other.seq)
    kind = _kind_of(made, by_line=True) if made is not None else None
    marks = _marks(in_other, other.group, other.seq, lookup)
    orders = []
    for sibling in islice(_siblings(other.group, groups), SIBLING_GROUPS):
        members = sorted(set(sibling.members) & set(one.group.members))
        lookup.prefetch(members)
        for rank in members:
            call = lookup.collective(rank, sibling, other.seq)
            index = lookup.index_of(rank, one.group.group.name, one.seq)
            if call is None or index < 0 or _kind_of(call, by_line=True) != kind:
                continue
            if _are_in_step(marks, _marks(rank, sibling, other.seq, lookup)):
                orders.append(index < lookup.index_of(rank, sibling.group.name, other.seq))
    if len(orders) < AGREEING_COUNTS or len(set(orders)) != 1:
        return None
    return in_other if orders[0] else in_one


def _siblings(group: ResolvedGroup, groups: Sequence[ResolvedGroup]) -> Iterator[ResolvedGroup]:
    """Groups of the same description, from those found next to it outwards.

    Dumps are read by rank, and ranks of one stage are neighbours.
    """
    description = group.group.description
    at = next((place for place, one in enumerate(groups) if one is group), 0)
    around = (groups[place] for place in _outwards(at, len(groups)))
    for one in around:
        if one is group or one.group.description != description or one.doubtful or one.misnamed:
            continue
        if description not in NO_DESCRIPTION and 1 < len(one.members) <= COMPARED_MEMBERS:
            yield one


def _outwards(at: int, count: int) -> Iterator[int]:
    """Places of a row of so many, the nearest to one first."""
    for distance in range(1, count):
        for place in (at - distance, at + distance):
            if 0 <= place < count:
                yield place


def _marks(
    rank: int, group: ResolvedGroup, seq: int, lookup: CallLookup
) -> dict[tuple[str, int], int]:
    """By name and number of a rank's calls of other groups its last call of the group before them.

    Of those before the call of that number.
    """
    entries = lookup.entries(rank)
    found: dict[tuple[str, int], int] = {}
    if entries is None:
        return found
    mine, last = entries.in_group(group.group.name), 0
    for row in range(len(entries)):
        if entries.is_p2p[row]:
            continue
        number = int(entries.seq[row])
        if mine[row]:
            last = number
            if number >= seq:
                break
        elif last:
            found[entries.group_at(row), number] = last
    return found


def _past(
    rank: int, group: ResolvedGroup, seq: int, lookup: CallLookup
) -> dict[int, tuple[str, object]]:
    """Operation and line of a rank's latest calls of a group before a number, by number."""
    entries = lookup.entries(rank)
    if entries is None:
        return {}
    mine = entries.in_group(group.group.name) & ~entries.is_p2p & (entries.seq < seq)
    found: dict[int, tuple[str, object]] = {}
    for row in np.flatnonzero(mine)[-COMPARED_COLLECTIVES:].tolist():
        stack = int(entries.stack[row])
        site = call_site(entries.stacks[stack]) if stack >= 0 else None
        found[int(entries.seq[row])] = entries.operation_at(row).op, site
    return found


def _are_alike_so_far(
    one: dict[int, tuple[str, object]], other: dict[int, tuple[str, object]]
) -> bool:
    """True if two groups are in step by all that is known of both, and that is much."""
    known = one.keys() & other.keys()
    return len(known) >= LONG_PAST and all(one[number] == other[number] for number in known)


def _are_in_step(one: dict[tuple[str, int], int], other: dict[tuple[str, int], int]) -> bool:
    """True if two ranks came to the calls that they share behind calls of the same numbers."""
    shared = one.keys() & other.keys()
    counts = {one[mark] for mark in shared}
    return len(counts) >= AGREEING_COUNTS and all(one[mark] == other[mark] for mark in shared)


def _kind_of(call: Call, by_line: bool) -> _Kind:
    if not by_line:
        return call.op
    site = call_site(call.stack)
    return None if site is None else (call.op, site)


def _made_by_all(group: ResolvedGroup, seq: int, lookup: CallLookup, by_line: bool) -> _Kind:
    """The kind of call of a number, where every member of the group shows the same."""
    calls = [lookup.collective(rank, group, seq) for rank in group.members]
    kinds = {_kind_of(call, by_line) if call is not None else None for call in calls}
    return kinds.pop() if len(kinds) == 1 else None
