"""Member sets whose ranks know a group by names that do not agree.

Ranks meet in a communicator by its name.  One that made a group more, or less, than its peers
gives other names to those that follow, so it waits in a communicator of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.signatures import OPERATION, operation_hash
from hanglab.analyzer.matching.summary import GAP
from hanglab.recorder.case.operations import OPERATIONS

if TYPE_CHECKING:
    from hanglab.analyzer.matching.groups import ResolvedGroup

Names = frozenset[str]

_ROOTED = frozenset(operation_hash(op.name) for op in OPERATIONS.values() if op.rooted)

#: Descriptions that torch gives to groups that nobody described.
NO_DESCRIPTION = frozenset({"", "undefined"})


@dataclass
class NameConflict:
    """``members`` have groups of one another by names that do not agree."""

    members: tuple[int, ...]
    #: Names by rank that not all of them know.
    names: dict[int, tuple[str, ...]]
    #: Whose names differ from those that most have; empty where nothing tells the sides apart.
    deviating: tuple[int, ...]
    #: Every rank that could be meant where ``deviating`` is empty.
    candidates: tuple[int, ...]
    #: Names by which some may mean another group than the others.
    unsure: frozenset[str]
    #: Ranks that have called something in a group by one of their names.
    used: frozenset[int] = frozenset()


def find_name_conflicts(
    groups: Sequence[ResolvedGroup], merged: MergedSummaries
) -> list[NameConflict]:
    """Conflicts of names, by member set; sets :attr:`ResolvedGroup.misnamed` of their groups."""
    by_members: dict[tuple[int, ...], list[ResolvedGroup]] = {}
    for group in groups:
        if not (group.guessed or group.former) and len(group.members) > 1:
            by_members.setdefault(group.members, []).append(group)
    shared = {members: alike for members, alike in by_members.items() if len(alike) > 1}
    found = _conflicts(shared, merged)
    using = [_using_names_of_others(conflict, groups) for conflict in found]
    # What such a rank calls another group tells nothing either.
    found = _conflicts(shared, merged, frozenset().union(*(one for one in using if len(one) == 1)))
    proved = {rank for conflict in found for rank in conflict.deviating}
    for conflict in found:
        # One wrong rank explains both; its only peer here need not be another.
        mine = proved.intersection(conflict.candidates) or _using_names_of_others(conflict, groups)
        if len(mine) == 1:
            conflict.deviating, conflict.candidates = tuple(mine), ()
    return found


def _conflicts(
    shared: Mapping[tuple[int, ...], list[ResolvedGroup]],
    merged: MergedSummaries,
    odd: Set[int] = frozenset(),
) -> list[NameConflict]:
    """Conflicts of names, by member set, in which ranks that are ``odd`` elsewhere do not vote."""
    found = [_conflict(members, alike, merged, odd) for members, alike in shared.items()]
    return [conflict for conflict in found if conflict is not None]


def find_lone_names(
    groups: Sequence[ResolvedGroup], ranks: Sequence[int], merged: MergedSummaries
) -> list[NameConflict]:
    """Conflicts of groups that list no members (gloo's): one rank waits in a group by itself.

    Nobody communicates alone. Where each of ``ranks``, the whole job, has a group of that
    description, or shapes tell that all belong in it and most are in one, its peers wait in theirs.
    Sets members and :attr:`ResolvedGroup.misnamed`.
    """
    by_description: dict[str, list[ResolvedGroup]] = {}
    for group in groups:
        if group.former:
            continue
        if group.guessed and not group.doubtful and group.group.description not in NO_DESCRIPTION:
            by_description.setdefault(group.group.description, []).append(group)
    found = []
    for alike in by_description.values():
        alone = [group for group in alike if len(group.progress) == 1]
        together = [group for group in alike if len(group.progress) > 1]
        if not alone or len(alike) < 2 or any(_met(group, merged) for group in alike):
            continue
        came = sorted(rank for group in alike for rank in group.progress)
        most = any(2 * len(group.progress) > len(ranks) for group in together)
        of_all = most and all(_sizes(group) == {len(ranks)} for group in alike)
        if len(set(came)) < len(came) or not (came == sorted(ranks) or of_all):
            continue  # Somebody has yet to come, perhaps into the group of who is alone.
        odd = sorted(rank for group in alone for rank in group.progress)
        if together and (len(together) > 1 or len(together[0].progress) <= len(odd)):
            continue
        for group in alike:
            group.misnamed, group.guessed = True, False
            group.group = replace(group.group, members=tuple(sorted(ranks)))
        found.append(
            NameConflict(
                tuple(sorted(ranks)),
                {rank: (group.group.name,) for group in alike for rank in group.progress},
                tuple(odd) if together else (),
                () if together else tuple(odd),
                frozenset(group.group.name for group in alike),
            )
        )
    return found


def _sizes(group: ResolvedGroup) -> set[int]:
    """Counts of members that shapes of its operations tell, 0 where they do not."""
    return {progress.part.size for progress in group.progress.values() if progress.part is not None}


def may_be_one(group: ResolvedGroup, other: ResolvedGroup) -> bool:
    """True if two groups of all ranks, not one and the same, may be one: no rank has used both.

    Whoever made a group more waits in one of them alone, and who has yet to come would tell.
    """
    described = group.group.description not in NO_DESCRIPTION
    alike = described and group.group.description == other.group.description
    return alike and group is not other and _users(group).isdisjoint(_users(other))


def _users(group: ResolvedGroup) -> set[int]:
    return {rank for rank, progress in group.progress.items() if progress.part is not None}


def _using_names_of_others(conflict: NameConflict, groups: Sequence[ResolvedGroup]) -> set[int]:
    """Candidates that give a group of theirs the name that other ranks give to groups of theirs."""
    by_name: dict[str, list[ResolvedGroup]] = {}
    for group in groups:
        by_name.setdefault(group.group.name, []).append(group)
    return {
        rank
        for rank in conflict.candidates
        for alike in by_name.values()
        for group in alike
        if rank in _holders(group)
        and any(
            rank not in (theirs := _holders(other)) and not {*theirs} <= {*conflict.candidates}
            for other in alike
        )
    }


def _conflict(
    members: tuple[int, ...],
    alike: list[ResolvedGroup],
    merged: MergedSummaries,
    without: Set[int],
) -> NameConflict | None:
    holders = {group.group.name: _holders(group) for group in alike}
    known: dict[int, set[str]] = {}
    for name, ranks in holders.items():
        for rank in ranks:
            known.setdefault(rank, set()).add(name)
    names = {rank: frozenset(mine) for rank, mine in known.items()}
    common = frozenset.intersection(*names.values()) if names else frozenset()
    # A rank that knows fewer names has yet to make the rest.
    counts = Counter(names.values())
    odd = {one for one in counts for other in counts if one - other and other - one}
    if not odd or any(_met(group, merged) for group in alike if group.group.name not in common):
        return None
    for group in alike:
        group.misnamed = _may_be_another(group, common, holders)
    votes = Counter(mine for rank, mine in names.items() if rank not in without) or counts
    usual, count = max(votes.items(), key=lambda item: (item[1], sorted(item[0])))
    against = [rank for rank, mine in names.items() if mine - usual and usual - mine]
    decided = count > len(against)
    apart = sorted(rank for rank, mine in names.items() if mine in odd)
    return NameConflict(
        members,
        {rank: tuple(sorted(names[rank] - common)) for rank in apart},
        tuple(sorted(against)) if decided else (),
        () if decided else tuple(apart),
        frozenset(group.group.name for group in alike if group.misnamed),
        frozenset(
            rank for group in alike for rank, one in group.progress.items() if one.entered
        ).intersection(apart),
    )


def _holders(group: ResolvedGroup) -> list[int]:
    return [
        rank
        for rank, progress in group.progress.items()
        if progress.part is not None and progress.part.members
    ]


def _met(group: ResolvedGroup, merged: MergedSummaries) -> bool:
    """True if a rank finished a collective there: whatever its name, its peers were with it.

    Not by one with a root: a member that only gives may finish its part alone.
    """
    table = merged.table()
    for rank, progress in group.progress.items():
        if progress.entered is None:
            continue
        for history in (one for key in group.histories for one in merged.histories.get(key, ())):
            for seq in range(*history.windows.get(rank, (0, 0))):
                code = int(history.codes[seq - history.base])
                if code != GAP and seq not in progress.unfinished:
                    if int(table[code][OPERATION]) not in _ROOTED:
                        return True
    return False


def _may_be_another(group: ResolvedGroup, common: Names, holders: dict[str, list[int]]) -> bool:
    """True if ranks may mean different groups by the name of ``group``."""
    name = group.group.name
    if name not in common:
        return True
    # Numbers are given in the order of creation: those after the first that differs are shifted.
    others = [int(other) for other in holders if other not in common and other.isdecimal()]
    return name.isdecimal() and bool(others) and int(name) > min(others)
