"""Process groups, their members, and the progress of each member.

A group is its name and its member set, under names that tell generations apart
(`generations`): split groups share a name, and gloo's dumps give no members at all.
A status is keyed by a number of the rank's own, which the entries of its peers tie
to a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.matching.calls import ProcessGroup
from hanglab.analyzer.matching.group_names import (
    NameConflict,
    find_lone_names,
    find_name_conflicts,
    may_be_one,
)
from hanglab.analyzer.matching.merging import MergedSummaries, group_key
from hanglab.analyzer.matching.summary import GroupSummary, Members, RankSummary
from hanglab.analyzer.matching.thresholds import FILLED_PART, UNLISTED_PART
from hanglab.recorder.case.operations import op_of

DEFAULT_NAME = "0"
DEFAULT_DESCRIPTION = "default_pg"


@dataclass
class GroupProgress:
    """Progress of one member in one group."""

    #: Highest collective sequence number entered; None if not known.
    entered: int | None
    unfinished: frozenset[int] = frozenset()
    part: GroupSummary | None = None
    #: It may have entered more: its file breaks off.
    at_least: bool = False

    def has_entered(self, seq: int) -> bool | None:
        """None where it is not known."""
        if self.entered is None:
            return None
        if seq <= self.entered:
            return True
        return None if self.at_least else False

    def finished(self, seq: int) -> bool:
        """True if it provably has."""
        if self.entered is None or seq > self.entered or seq in self.unfinished:
            return False
        if self.part is None or not self.part.history_truncated:
            return True
        return seq >= self.part.base > 0

    def showed_finished(self, seq: int) -> bool:
        """True if its dump shows it, be that one of a rank on its way, and not of gloo.

        Gloo's buffer calls finished what failed, too.
        """
        part = self.part
        if part is None or part.gloo or part.entered is None:
            return False
        return part.base <= seq <= part.entered and seq not in part.unfinished


@dataclass
class ResolvedGroup:
    """A group with its members in group order, and what is known of each of them."""

    group: ProcessGroup
    progress: dict[int, GroupProgress] = field(default_factory=dict)
    #: Members were guessed from who has entries, so there may be more.
    guessed: bool = False
    #: No dump gives members, and groups of one name may be several: who belongs together is open.
    doubtful: bool = False
    #: Members have other names for it, or other groups by its name: they do not meet in it.
    misnamed: bool = False
    #: Some member used point-to-point on it.
    p2p: bool = False
    #: A group of its name was formed later, in its place.
    former: bool = False
    #: Keys of :attr:`Merged.histories` that belong here.
    histories: list[tuple[str, Members | None]] = field(default_factory=list)
    #: Ranks without a dump that may belong here, where members were guessed.
    possible: tuple[int, ...] = ()
    #: Nobody has finished anything in it, so ranks may belong here that have yet to come.
    incomplete: bool = False
    #: So many more members are allowed for where nothing says how many ranks the job has.
    unlisted: int = 0

    @property
    def members(self) -> tuple[int, ...]:
        return self.group.members

    def unknown(self) -> list[int]:
        """Members of whom nothing is known in this group."""
        return [
            rank
            for rank in self.members
            if (progress := self.progress.get(rank)) is None or progress.entered is None
        ]


@dataclass
class GroupTable:
    """All groups, and which one each part of each rank belongs to."""

    groups: list[ResolvedGroup]
    #: (rank, index of the part) -> index of the group
    places: dict[tuple[int, int], int]
    expected: tuple[int, ...]
    #: Nothing tells how many ranks the job has: there may be more after the last.
    world_size_unknown: bool = False
    #: Ranks whose dumps tell of nothing.
    empty: tuple[int, ...] = ()
    #: Ranks whose sends and receives leave no entry.
    silent_p2p: frozenset[int] = frozenset()
    #: Some rank is known to have made such ones.
    uses_p2p: bool = False
    name_conflicts: list[NameConflict] = field(default_factory=list)


def resolve(merged: MergedSummaries, expected: Sequence[int] | None) -> GroupTable:
    everybody, world_size_unknown = _expected(merged, expected)
    group_table = GroupTable([], {}, everybody, world_size_unknown, _empty(merged))
    group_table.silent_p2p = frozenset(
        r for r, summary in merged.ranks.items() if summary.silent_p2p
    )
    group_table.uses_p2p = any(part.hidden for s in merged.ranks.values() for part in s.parts)
    index: dict[tuple[str, Members], int] = {}
    descriptions: dict[int, Counter[str]] = {}
    loose: dict[str, list[tuple[int, int]]] = {}
    names: dict[str, list[int]] = {}

    def enter(rank: int, number: int, part: GroupSummary, place: int) -> None:
        group_table.places[rank, number] = place
        group = group_table.groups[place]
        summary = merged.ranks[rank]
        # A status that can be read says all; without one, a cut file hides the rest.
        sure = summary.has_status and not part.gloo and not part.p2p
        group.progress[rank] = (
            GroupProgress(
                part.entered, frozenset(part.unfinished), part, summary.truncated and not sure
            )
            if summary.informative
            else GroupProgress(None, part=part)
        )
        group.p2p = group.p2p or part.p2p
        group.former = part.former
        key = group_key(part)
        if key not in group.histories:
            group.histories.append(key)
        if part.description:
            descriptions.setdefault(place, Counter())[part.description] += 1

    def create(name: str, members: Members, guessed: bool) -> int:
        place = len(group_table.groups)
        group_table.groups.append(
            ResolvedGroup(ProcessGroup(name, tuple(members)), guessed=guessed)
        )
        names.setdefault(name, []).append(place)
        return place

    for rank, summary in merged.ranks.items():
        for number, part in enumerate(summary.parts):
            if not part.members:
                loose.setdefault(part.name, []).append((rank, number))
                continue
            place = index.get((part.name, part.members))
            if place is None:
                place = index[part.name, part.members] = create(part.name, part.members, False)
            enter(rank, number, part, place)
    #: Groups of which shapes tell that all ranks are in them.
    shaped: list[ResolvedGroup] = []
    for name, owners in loose.items():
        left = []
        for rank, number in owners:
            fitting = [p for p in names.get(name, ()) if rank in group_table.groups[p].members]
            if len(fitting) == 1:
                enter(rank, number, merged.ranks[rank].parts[number], fitting[0])
            else:
                left.append((rank, number))
        if not left:
            continue
        parts = [merged.ranks[rank].parts[number] for rank, number in left]
        default = any(map(_is_default, parts))
        # Shapes may tell that all ranks are in it, who has not come to it included.
        all_of_job = not world_size_unknown and {p.size for p in parts} - {0} == {len(everybody)}
        members = tuple(sorted({rank for rank, _ in left}))
        members = everybody if default or all_of_job else members
        place = create(name, members, not default or expected is None)
        # A gloo dump never gives members, but its groups do not share names.
        group_table.groups[place].doubtful = not default and not all(part.gloo for part in parts)
        for (rank, number), part in zip(left, parts, strict=True):
            enter(rank, number, part, place)
        if all_of_job and not default:
            shaped.append(group_table.groups[place])
    for place, group in enumerate(group_table.groups):
        if place in descriptions:
            found = sorted(descriptions[place].items(), key=lambda item: (-item[1], item[0]))
            group.group = ProcessGroup(group.group.name, group.members, found[0][0])
    group_table.name_conflicts = find_name_conflicts(group_table.groups, merged)
    if not world_size_unknown:
        group_table.name_conflicts += find_lone_names(group_table.groups, everybody, merged)
    for group in shaped:
        group.misnamed = group.misnamed or any(may_be_one(group, other) for other in shaped)
        if not group.misnamed:
            group.guessed = expected is None
            _enter_who_never_came(merged, group)
    _find_possible_members(merged, group_table)
    _assign_statuses(merged, group_table)
    return group_table


def _enter_who_never_came(merged: MergedSummaries, group: ResolvedGroup) -> None:
    """Note the members whose dumps hold all that they did, and nothing in the group."""
    for rank in group.members:
        summary = merged.ranks.get(rank)
        if rank in group.progress or summary is None or summary.truncated:
            continue
        if summary.whole and summary.informative:
            group.progress[rank] = GroupProgress(0)


def _empty(merged: MergedSummaries) -> tuple[int, ...]:
    """Ranks that tell of nothing: not even of groups that, as peers show, are there to be used."""
    empty = [rank for rank, summary in merged.ranks.items() if summary.empty]
    if len(empty) < len(merged.ranks):
        empty = [rank for rank in empty if not merged.ranks[rank].informative]
    return tuple(sorted(empty))


def _find_possible_members(merged: MergedSummaries, group_table: GroupTable) -> None:
    """Note who may belong to a group whose members were guessed from those that used it."""
    absent = [rank for rank in group_table.expected if rank not in merged.ranks]
    for group in group_table.groups:
        if not group.guessed:
            continue
        sizes = {s.part.size for s in group.progress.values() if s.part is not None} - {0}
        if sizes == {len(group.members)}:
            continue
        group.possible = tuple(rank for rank in absent if rank not in group.members)
        unfinished = [progress.unfinished for progress in group.progress.values()]
        if not group_table.world_size_unknown:
            fewer = len(group.members) < len(group_table.expected)
            group.incomplete = fewer and any(1 in numbers for numbers in unfinished)
        else:
            group.unlisted = -(-len(group.members) // UNLISTED_PART)


def _expected(
    merged: MergedSummaries, expected: Sequence[int] | None
) -> tuple[tuple[int, ...], bool]:
    """The ranks that the job should have, and whether there may be more of them."""
    if expected is not None:
        return tuple(sorted(set(expected) | set(merged.ranks))), False
    seen = set(merged.ranks)
    lists = {part.members for s in merged.ranks.values() for part in s.parts}
    for members in lists | {s.nameless for s in merged.ranks.values()}:
        seen.update(members or ())
    default = [p for s in merged.ranks.values() for p in s.parts if _is_default(p)]
    world_size_unknown = not any(part.members for part in default) if default else not any(lists)
    sizes = {part.size for part in default} - {0}
    if world_size_unknown and len(sizes) == 1 and max(seen, default=0) < min(sizes):
        return tuple(range(sizes.pop())), False
    for part in (part for s in merged.ranks.values() for part in s.parts):
        if not part.members and _is_default(part):
            # Without a list of members, they are the numbers up to the highest that is named.
            named = [max(channel.src, channel.dst) for channel in part.channels]
            most = max(seen)
            seen.update(range(max(named, default=0) + 1))
            if most < FILLED_PART * len(seen):
                seen.update(range(most))
    return tuple(sorted(seen)), world_size_unknown


def _is_default(part: GroupSummary) -> bool:
    return part.name == DEFAULT_NAME or part.description == DEFAULT_DESCRIPTION


def _assign_statuses(merged: MergedSummaries, group_table: GroupTable) -> None:
    """Tie statuses to groups by the numbers that peers give the same group, or by their order.

    Each process numbers its own groups as they are made, and so names count them.
    """
    by_name = {rank: _places_by_name(summary) for rank, summary in merged.ranks.items()}
    told = [
        part.pg_id == by_name[rank].get(part.name)
        for rank, summary in merged.ranks.items()
        for part in summary.parts
        if part.pg_id != ABSENT
    ]
    in_order = all(told) and len(told) > 1
    for group in group_table.groups:
        votes = {
            progress.part.pg_id
            for progress in group.progress.values()
            if progress.part is not None and progress.part.pg_id != ABSENT
        }
        if len(votes) != 1 and not in_order:
            continue
        voted = votes.pop() if len(votes) == 1 else None
        untold: list[tuple[int, int]] = []
        for rank in group.members:
            summary = merged.ranks.get(rank)
            if summary is None or not summary.informative:
                continue
            progress = group.progress.get(rank)
            if progress is None:
                progress = group.progress[rank] = GroupProgress(None)
            pg_id = by_name[rank].get(group.group.name, voted) if in_order else voted
            if progress.entered is None and pg_id is not None:
                _apply_status(summary, progress, pg_id, group)
                untold += [(rank, pg_id)] if progress.entered is None else []
        _apply_what_peers_wait_in(merged, untold, group)


def _places_by_name(summary: RankSummary) -> dict[str, int]:
    """Places of a rank's groups in the order of their names; {} where some name is no number."""
    names = {part.name for part in summary.parts}
    if not all(name.isdecimal() for name in names):
        return {}
    return {name: place for place, name in enumerate(sorted(names, key=int))}


def _apply_status(
    summary: RankSummary, progress: GroupProgress, pg_id: int, group: ResolvedGroup
) -> None:
    if summary.whole:
        progress.entered = 0
        return
    own = {part.pg_id for part in summary.parts if part is not progress.part}
    if pg_id in own or not summary.has_status:
        return
    if group.p2p or any(s.part is not None and s.part.hidden for s in group.progress.values()):
        # The status counts point-to-point operations as well.
        return
    # A group gets a status with its first operation.
    enqueued, completed = summary.unassigned_status.get(pg_id, (0, 0))
    enqueued, completed = max(enqueued, 0), max(completed, 0)
    known = [s for s in group.progress.values() if s.entered is not None]
    finished = max((min(s.unfinished, default=(s.entered or 0) + 1) - 1 for s in known), default=0)
    entered = min((s.entered or 0 for s in known), default=0)
    if enqueued < finished or completed > entered:
        # Nobody finishes what a member has not entered: this number means another group.
        return
    if summary.gloo and completed != enqueued:
        # Its threads write the last completed number without order: it may stay behind.
        return
    progress.entered = enqueued
    progress.unfinished = frozenset(range(completed + 1, enqueued + 1))


def _apply_what_peers_wait_in(
    merged: MergedSummaries, untold: Sequence[tuple[int, int]], group: ResolvedGroup
) -> None:
    """Note which ranks have yet to come to what peers wait in, as they have ended all they issued.

    Nobody ends that before all have come, unless it has a root, and what they have ended the rank
    has come to.  Or it has issued less than that, messages included.
    """
    open_ = [min(one.unfinished) for one in group.progress.values() if one.unfinished]
    if not (untold and open_):
        return
    first = min(open_)
    ops = {
        pending.op
        for other, progress in group.progress.items()
        for pending in merged.ranks[other].pending
        if pending.seq == first and merged.ranks[other].parts[pending.part] is progress.part
    }
    of_all = bool(ops) and not any(op_of(op).rooted for op in ops)
    for rank, pg_id in untold:
        issued, completed = merged.ranks[rank].unassigned_status.get(pg_id, (0, ABSENT))
        ended = completed == issued and not merged.ranks[rank].gloo
        if ended and (issued + 1 == first or (of_all and issued >= first)):
            group.progress[rank].entered = first - 1
