"""A Program with ranks, operations or groups left out, and what it is still made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hanglab.analyzer.program.program import Action, Program, ProgramGroup

#: A rank, and the place of one of its actions.
Place = tuple[int, int]


@dataclass(frozen=True)
class ReducedProgram:
    """``ranks[r]`` is the rank of the whole job that rank r of ``program`` is."""

    program: Program
    ranks: tuple[int, ...]

    def with_program(self, program: Program) -> ReducedProgram:
        return replace(self, program=program)

    @property
    def calls(self) -> int:
        return sum(map(len, self.program.actions))


@dataclass(frozen=True)
class ProgramOperation:
    """Calls that meet each other: a collective of all members, or both ends of a message."""

    places: tuple[Place, ...]


def whole(program: Program) -> ReducedProgram:
    """The whole program, of which nothing has been left out yet."""
    return ReducedProgram(program, tuple(range(program.world_size)))


def keep_ranks(reduced: ReducedProgram, kept: Collection[int]) -> ReducedProgram:
    """The program of some of its ranks alone.

    Groups lose the others' places; what has nobody left to meet goes: collectives of a group of
    one, and messages from and to those who went.  A root that went is the first that is left.
    """
    program = reduced.program
    ranks = sorted(kept)
    groups, places = groups_of(program.groups, ranks)
    actions = tuple(
        tuple(
            changed
            for action in program.actions[rank]
            if (changed := of_members(action, places[action.group])) is not None
        )
        for rank in ranks
    )
    cut = ReducedProgram(Program(groups, actions), tuple(reduced.ranks[rank] for rank in ranks))
    return without_unused_groups(cut)


def groups_of(
    groups: Sequence[ProgramGroup], ranks: Sequence[int]
) -> tuple[tuple[ProgramGroup, ...], list[dict[int, int]]]:
    """The groups among ``ranks`` alone, which are numbered anew in their order.

    And for each the place that a member has now, by the one that it had.
    """
    number = {rank: place for place, rank in enumerate(ranks)}
    cut: list[ProgramGroup] = []
    places: list[dict[int, int]] = []
    for group in groups:
        left = [place for place, member in enumerate(group.members) if member in number]
        places.append({old: new for new, old in enumerate(left)})
        makers = tuple(number[rank] for rank in group.makers if rank in number)
        members = tuple(number[group.members[old]] for old in left)
        # Nobody is left who made it: it stays without members, and is in nobody's way.
        members = members if makers or not group.makers else ()
        cut.append(replace(group, members=members, makers=makers))
    return tuple(cut), places


def of_members(action: Action, places: Mapping[int, int]) -> Action | None:
    """The action among the members that are left; None where nobody is left to meet."""
    if len(places) < 2 or (action.peer is not None and action.peer not in places):
        return None
    root = action.root if action.root is None else places.get(action.root, 0)
    peer = None if action.peer is None else places[action.peer]
    splits = action.splits
    if splits is not None:
        sends, receives = (
            tuple(amounts[old] for old in places if old < len(amounts)) for amounts in splits
        )
        splits = sends, receives
    return replace(action, root=root, peer=peer, splits=splits)


def without_unused_groups(reduced: ReducedProgram) -> ReducedProgram:
    program = reduced.program
    called = {action.group for mine in program.actions for action in mine}
    made = {n for n, group in enumerate(program.groups) if group.makers and group.members}
    used = sorted(called | made)
    number = {group: place for place, group in enumerate(used)}
    actions = tuple(
        tuple(replace(action, group=number[action.group]) for action in mine)
        for mine in program.actions
    )
    groups = tuple(program.groups[group] for group in used)
    return reduced.with_program(Program(groups, actions))


def operations_of(program: Program) -> list[ProgramOperation]:
    """The operations that the calls of all ranks make together, in the order of their beginning.

    Collectives meet by their number in the group, messages by their number between two ranks;
    what nobody meets is an operation of one call.
    """
    met: dict[tuple[int, ...], list[Place]] = defaultdict(list)
    any_source: list[tuple[int, Place]] = []
    for rank, mine in enumerate(program.actions):
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for index, action in enumerate(mine):
            me = program.groups[action.group].members.index(rank)
            if not action.p2p:
                key: tuple[int, ...] = (action.group,)
            elif action.peer is None:
                any_source.append((action.group, (rank, index)))
                continue
            else:
                ends = (me, action.peer) if action.op == "send" else (action.peer, me)
                key = (action.group, *ends)
            numbered = (*key, counts[key])
            met[numbered].append((rank, index))
            counts[key] += 1
    _give_to_any_source(program, met, any_source)
    found = [ProgramOperation(tuple(places)) for places in met.values()]
    return sorted(found, key=lambda one: min((index, rank) for rank, index in one.places))


def _give_to_any_source(
    program: Program,
    met: dict[tuple[int, ...], list[Place]],
    receives: Sequence[tuple[int, Place]],
) -> None:
    """Receives from any source meet what nobody else receives, in its order."""
    for group, place in receives:
        me = program.groups[group].members.index(place[0])
        sent = (
            (places[0][1], key)
            for key, places in met.items()
            if len(key) == 4 and key[0] == group and key[2] == me and len(places) == 1
            if program.actions[places[0][0]][places[0][1]].op == "send"
        )
        _, key = min(sent, default=(0, None))
        if key is None:
            met[group, -1, me, place[1]] = [place]
        else:
            met[key].append(place)


def keep_operations(reduced: ReducedProgram, kept: Iterable[ProgramOperation]) -> ReducedProgram:
    """The program of some of its operations alone."""
    places = {place for operation in kept for place in operation.places}
    return without_unused_groups(
        reduced.with_program(
            replace(
                reduced.program,
                actions=tuple(
                    tuple(a for index, a in enumerate(mine) if (rank, index) in places)
                    for rank, mine in enumerate(reduced.program.actions)
                ),
            )
        )
    )


def without_call(reduced: ReducedProgram, place: Place) -> ReducedProgram:
    rank, index = place
    mine = reduced.program.actions[rank]
    changed = reduced.program.with_actions(rank, mine[:index] + mine[index + 1 :])
    return without_unused_groups(reduced.with_program(changed))
