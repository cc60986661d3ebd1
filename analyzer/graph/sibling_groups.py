"""Groups beside one in which two sides differ, which run the same part of the program.

Tensor-parallel groups of one job make the same calls under the same numbers.  What all members of
others made is right, however few of this one did.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from hanglab.analyzer.graph.thresholds import SIBLING_GROUPS
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.matching.group_names import NO_DESCRIPTION
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.analyzer.matching.signatures import call_site

_Place = tuple[str, object]
_OF_LINES = (Difference.OPERATION, Difference.CALL_SITE)


def settle_by_siblings(divergence: Divergence, group_table: GroupTable, lookup: CallLookup) -> None:
    """Let groups of the same description tell the right one of calls from different lines.

    Their members count with those of the group itself.
    """
    sides = {rank: _place_of(call) for rank, call in divergence.calls.items()}
    places = set(sides.values())
    if divergence.difference not in _OF_LINES or len(places) < 2:
        return
    before = _calls_before(min(sides), divergence.group.name, divergence.seq, lookup)
    right, then, votes = None, set(), 0
    for sibling in islice(_siblings(divergence, group_table), SIBLING_GROUPS):
        theirs = _calls_before(min(sibling.members), sibling.group.name, divergence.seq, lookup)
        shared = before.keys() & theirs.keys()
        if not shared or any(before[seq] != theirs[seq] for seq in shared):
            continue  # It is of another stage, whose calls have other numbers.
        made = _made_by_all(sibling, divergence.seq, lookup)
        if made not in places or right not in (None, made):
            return  # They do not agree.
        right = made
        votes += len(sibling.members)
        then.add(_made_by_all(sibling, divergence.seq + 1, lookup))
    odd = tuple(sorted(rank for rank, place in sides.items() if place != right))
    if right is None or 2 * len(odd) >= votes + len(sides):
        return
    divergence.deviating, divergence.candidates = odd, ()
    divergence.skipped = divergence.skipped or {sides[rank] for rank in odd} == then


def _siblings(divergence: Divergence, group_table: GroupTable) -> Iterator[ResolvedGroup]:
    description = divergence.group.description
    for one in group_table.groups:
        if one.group.description == description and description not in NO_DESCRIPTION:
            if one.group != divergence.group and not (one.doubtful or one.misnamed):
                yield one


def _calls_before(rank: int, name: str, seq: int, lookup: CallLookup) -> dict[int, _Place]:
    """Operations and lines of a rank's earlier calls of a group, by number."""
    entries = lookup.entries(rank)
    if entries is None:
        return {}
    rows = entries.in_group(name) & ~entries.is_p2p & (entries.seq < seq)
    sites: dict[int, object] = {}
    found: dict[int, _Place] = {}
    for row in np.flatnonzero(rows).tolist():
        stack = int(entries.stack[row])
        if stack not in sites:
            sites[stack] = call_site(entries.stack_at(row))
        found[int(entries.seq[row])] = (entries.operation_at(row).op, sites[stack])
    return found


def _place_of(call: Call) -> _Place | None:
    site = call_site(call.stack)
    return None if site is None else (call.op, site)


def _made_by_all(group: ResolvedGroup, seq: int, lookup: CallLookup) -> _Place | None:
    """Operation and line of a number, where every member of the group shows the same."""
    calls = [lookup.collective(rank, group, seq) for rank in group.members]
    places = {_place_of(call) if call is not None else None for call in calls}
    return places.pop() if len(places) == 1 else None
