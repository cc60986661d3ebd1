"""Lines that differ as a branch of the program has its own, and hold nobody up.

Calls that differ in their lines alone do meet.  By these a rank may be ahead of its peers, and yet
what the job waits for is something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Difference, Divergence
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.signatures import call_site, difference


def holds_up_nobody(
    divergence: Divergence, merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup
) -> bool:
    """True of a difference in lines if those who deviate wait elsewhere, or are in a branch."""
    if divergence.difference is not Difference.CALL_SITE:
        return False
    apart = divergence.deviating or divergence.candidates[:1]
    return (bool(divergence.deviating) and _wait_elsewhere(divergence, merged, group_table)) or (
        _are_in_a_branch(apart, divergence, group_table, lookup)
    )


def _wait_elsewhere(
    divergence: Divergence, merged: MergedSummaries, group_table: GroupTable
) -> bool:
    """True if all who deviate by their lines wait on another group in what others have entered."""
    deviating = {*divergence.deviating}
    for rank in deviating:
        for pending in merged.ranks[rank].pending:
            group = group_table.groups[group_table.places[rank, pending.part]]
            if pending.seq is None or group.group == divergence.group:
                continue
            others = (one for other, one in group.progress.items() if other not in deviating)
            if any(one.has_entered(pending.seq) for one in others):
                break
        else:
            return False
    return True


def _are_in_a_branch(
    apart: Sequence[int], divergence: Divergence, group_table: GroupTable, lookup: CallLookup
) -> bool:
    """True if these ranks make their calls on other groups, too, from lines of their own since.

    The very calls of their peers: who left one out goes on from the lines of all others.
    """
    peer = next((rank for rank in divergence.calls if rank not in apart), None)
    return peer is not None and all(
        _is_in_a_branch(rank, peer, divergence, group_table, lookup) for rank in apart
    )


def _is_in_a_branch(
    rank: int, peer: int, divergence: Divergence, group_table: GroupTable, lookup: CallLookup
) -> bool:
    entries = lookup.entries(rank)
    begin = lookup.index_of(rank, divergence.group.name, divergence.seq)
    if entries is None or begin < 0:
        return False
    groups = {
        progress.part.name: group
        for group in group_table.groups
        if group.group != divergence.group
        and (progress := group.progress.get(rank)) is not None
        and progress.part is not None
    }
    apart = 0
    for row in range(begin + 1, len(entries)):
        group = groups.get(entries.group_at(row))
        if group is None or entries.is_p2p[row]:
            continue
        pair = [lookup.collective(one, group, int(entries.seq[row])) for one in (rank, peer)]
        mine, theirs = pair
        if mine is None or theirs is None:
            continue
        if difference(mine, theirs, sites=False):
            return False
        if call_site(mine.stack) == call_site(theirs.stack):
            break  # In step again, or they have been so.
        apart += 1
    return apart > 1
