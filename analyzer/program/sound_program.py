"""A Program without its fault: the least that its culprits have to do otherwise to end well."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from hanglab.analyzer.program.program import Action, Program
from hanglab.analyzer.program.simulation import Backend, Run, simulate

#: Changes of culprits that are tried together.
_CHANGES = 2
#: Calls that ranks may lack at the end, as the hang kept them from making them.
_MOST_ADDED = 24


def without_fault(
    program: Program,
    culprits: Collection[int],
    is_sound: Callable[[Program], bool],
    backend: Backend = "gloo",
) -> Program | None:
    """The program with its culprits mended, and with what all lack after that; None if none is.

    What it hung in, it did not go on from: ranks that wait for nobody make what others wait in.
    """
    tried = [program]
    for _ in range(_CHANGES + 1):
        for changed in tried:
            ended = _completed(changed, culprits, backend)
            if ended is not None and is_sound(ended):
                return ended
        tried = list(
            dict.fromkeys(
                again
                for changed in tried
                for rank in sorted(culprits)
                for again in _changes(changed, rank, backend)
            )
        )
    return None


def _changes(program: Program, rank: int, backend: Backend) -> Iterator[Program]:
    """The program with one call of the rank made otherwise, the likeliest first."""
    mine = list(program.actions[rank])
    for index, action in enumerate(mine):
        for like in _as_peers(program, rank, index):
            yield program.with_actions(rank, [*mine[:index], like, *mine[index + 1 :]])
        if action.splits is not None:
            even = _agreeing(program, rank, index)
            yield program.with_actions(rank, [*mine[:index], even, *mine[index + 1 :]])
    awaited = list(_awaited(simulate(program, backend), rank))
    for index in reversed(range(len(mine) + 1)):
        for answer in awaited:
            yield program.with_actions(rank, [*mine[:index], answer, *mine[index:]])
    for index in range(len(mine) - 1):
        swapped = [*mine[:index], mine[index + 1], mine[index], *mine[index + 2 :]]
        yield program.with_actions(rank, swapped)
    for index in reversed(range(len(mine))):
        yield program.with_actions(rank, [*mine[:index], *mine[index + 1 :]])


def _numbered(program: Program, rank: int) -> Iterator[tuple[tuple[int, int], Action]]:
    counts: dict[int, int] = {}
    for action in program.actions[rank]:
        if not action.p2p:
            counts[action.group] = counts.get(action.group, 0) + 1
            yield (action.group, counts[action.group]), action


def _as_peers(program: Program, rank: int, index: int) -> list[Action]:
    """Calls of peers under the number of one call, where they are others."""
    mine = program.actions[rank][index]
    if mine.p2p:
        return []
    number = sum(a.group == mine.group and not a.p2p for a in program.actions[rank][: index + 1])
    peers = (dict(_numbered(program, peer)) for peer in range(program.world_size) if peer != rank)
    found = (calls.get((mine.group, number)) for calls in peers)
    likes = (replace(call, overlap=mine.overlap, splits=mine.splits) for call in found if call)
    return [like for like in dict.fromkeys(likes) if like != mine]


def _agreeing(program: Program, rank: int, index: int) -> Action:
    """The rank's all_to_all with the split lists that its peers' ask for."""
    mine = program.actions[rank][index]
    members = program.groups[mine.group].members
    number = sum(a.group == mine.group and not a.p2p for a in program.actions[rank][: index + 1])
    me = members.index(rank)
    assert mine.splits is not None
    sends, receives = map(list, mine.splits)
    for place, peer in enumerate(members):
        call = dict(_numbered(program, peer)).get((mine.group, number))
        if peer != rank and call is not None and call.splits is not None:
            sends[place], receives[place] = call.splits[1][me], call.splits[0][me]
    receives[me] = sends[me]
    return replace(mine, splits=(tuple(sends), tuple(receives)))


def _completed(program: Program, culprits: Collection[int], backend: Backend) -> Program | None:
    """The program with what its ranks lack once nothing else moves; None if that does not help."""
    for _ in range(_MOST_ADDED):
        run = simulate(program, backend)
        if not run.stuck:
            return program
        added = _added(run, culprits)
        if added is None:
            return None
        rank, action = added
        program = program.with_actions(rank, [*program.actions[rank], action])
    return None


def _added(run: Run, culprits: Collection[int]) -> tuple[int, Action] | None:
    """A rank that has nothing left to do, and what another waits for it in."""
    ranks = range(run.program.world_size)
    idle = [rank for rank in ranks if all(one.done for one in run.ranks[rank].issued)]
    found = [
        (rank, answer)
        for rank in sorted(idle, key=lambda rank: rank not in culprits)
        for answer in _awaited(run, rank)
    ]
    # Whoever waits for a message may be who a collective lacks.
    return min(found, key=lambda one: not one[1].p2p, default=None)


def _awaited(run: Run, rank: int) -> Iterator[Action]:
    """The calls by which the rank would do its part of what others wait in."""
    begun = {(one.action.group, one.seq) for one in run.ranks[rank].issued if not one.action.p2p}
    asked: set[tuple[int, int]] = set()
    for peer, state in enumerate(run.ranks):
        for one in state.issued:
            action = one.action
            members = run.program.groups[action.group].members
            if peer == rank or one.done or not one.running or rank not in members:
                continue
            me = members.index(rank)
            if not action.p2p:
                key = action.group, one.seq
                if key not in begun and key not in asked:
                    asked.add(key)
                    yield replace(action, overlap=False)
            elif action.peer is None or action.peer == me:
                op = "recv" if action.op == "send" else "send"
                # Its own line: no call of the program was made from there.
                half = replace(action, op=op, peer=members.index(peer), overlap=False)
                yield replace(half, site=-action.site)
