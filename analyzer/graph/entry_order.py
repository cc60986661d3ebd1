"""Order in which members of two groups enter an operation of each, where ranks wait crosswise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Int64
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.thresholds import COMPARED_MEMBERS
from hanglab.analyzer.graph.waits import OpenOperation
from hanglab.analyzer.matching.call_lookup import CallLookup


def was_crossed_before(cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if two neighbours of a ring have entered its groups in opposite orders, and went on.

    Then their orders do not matter: each group is a stream, and the hosts wait for neither alone.
    """
    ranks = list(cycle.places)
    for one, other in pairwise([*ranks, ranks[0]]):
        places = cycle.places[one], cycle.places[other]
        mine, theirs = (_entered_before(rank, *places, lookup) for rank in (one, other))
        if any(mine[seq] != theirs[seq] for seq in mine.keys() & theirs.keys()):
            return True
    return False


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


def _entered_before(
    rank: int, one: OpenOperation, other: OpenOperation, lookup: CallLookup
) -> dict[int, int]:
    """For each earlier number of the one group, the last of the other entered before it."""
    entries = lookup.entries(rank)
    if entries is None or one.seq is None or other.seq is None:
        return {}
    names: Sequence[str] = [group.name for group in entries.group_names]
    rows = ~entries.is_p2p & (entries.seq > 0)

    def of(operation: OpenOperation) -> Int64:
        groups = [i for i, name in enumerate(names) if name == operation.group.group.name]
        assert operation.seq is not None
        found = rows & np.isin(entries.group, groups) & (entries.seq < operation.seq)
        places: Int64 = np.flatnonzero(found)
        return places

    mine, theirs = of(one), of(other)
    if not len(theirs) or any((np.diff(entries.seq[found]) != 1).any() for found in (mine, theirs)):
        return {}  # What has finished was left out.
    last = np.append(int(entries.seq[theirs[0]]) - 1, entries.seq[theirs])
    places = np.searchsorted(theirs, mine)
    return dict(zip(entries.seq[mine].tolist(), last[places].tolist(), strict=True))
