"""One thing wrong with a Program, and who is to blame for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from hanglab.analyzer.program.program import COLLECTIVES, ROOTED, Action, Program


@dataclass(frozen=True)
class ProgramFault:
    """A faulty Program with its truth; what stops is for :func:`simulation.simulate`."""

    kind: str
    culprits: frozenset[int]
    program: Program
    stops: dict[int, int] = field(default_factory=dict)
    device_stops: dict[int, int] = field(default_factory=dict)
    #: Index of the culprit's action at which it goes wrong.
    at: int = 0


#: Lines that no healthy program has.
_FOREIGN_SITE = 9000


def _changed(program: Program, rank: int, at: int, *actions: Action) -> Program:
    mine = list(program.actions[rank])
    mine[at : at + 1] = actions
    return program.with_actions(rank, mine)


def _places(program: Program, rank: int, fits: Callable[[Action], bool]) -> list[int]:
    # The last action ends the job for all: a fault there has no aftermath.
    return [i for i, action in enumerate(program.actions[rank][:-1]) if fits(action)]


def skip(program: Program, rank: int, random: Random) -> ProgramFault | None:
    places = _places(program, rank, lambda a: not a.p2p)
    if not places:
        return None
    at = random.choice(places)
    return ProgramFault("skip", frozenset({rank}), _changed(program, rank, at), at=at)


def extra(program: Program, rank: int, random: Random) -> ProgramFault | None:
    groups = [i for i, g in enumerate(program.groups) if rank in g.members and len(g.members) > 1]
    places = _places(program, rank, lambda a: not a.batch)
    if not groups or not places:
        return None
    at, group = random.choice(places), random.choice(groups)
    action = Action("all_reduce", group, site=_FOREIGN_SITE, numel=random.choice((1, 7, 64)))
    return ProgramFault(
        "extra",
        frozenset({rank}),
        _changed(program, rank, at, action, program.actions[rank][at]),
        at=at,
    )


def wrong_operation(program: Program, rank: int, random: Random) -> ProgramFault | None:
    places = _places(program, rank, lambda a: not a.p2p)
    if not places:
        return None
    at = random.choice(places)
    action = program.actions[rank][at]
    op = random.choice([op for op in COLLECTIVES if op != action.op])
    root = 0 if op in ROOTED else None
    wrong = replace(action, op=op, root=root, site=_FOREIGN_SITE + 1)
    return ProgramFault(
        "wrong_operation", frozenset({rank}), _changed(program, rank, at, wrong), at=at
    )


def _argument(
    kind: str, fits: Callable[[Action], bool], change: Callable[[Action, Program], Action]
) -> Callable[[Program, int, Random], ProgramFault | None]:
    def make(program: Program, rank: int, random: Random) -> ProgramFault | None:
        places = _places(program, rank, lambda a: not a.p2p and fits(a))
        if not places:
            return None
        at = random.choice(places)
        wrong = change(program.actions[rank][at], program)
        return ProgramFault(kind, frozenset({rank}), _changed(program, rank, at, wrong), at=at)

    return make


def _other_root(action: Action, program: Program) -> Action:
    size = len(program.groups[action.group].members)
    return replace(action, root=((action.root or 0) + 1) % size)


wrong_size = _argument(
    "size",
    lambda a: a.op not in ("barrier", "all_to_all"),
    lambda a, _: replace(a, numel=a.numel + 3),
)
wrong_dtype = _argument(
    "dtype",
    lambda a: a.op != "barrier",
    lambda a, _: replace(a, dtype="Double" if a.dtype != "Double" else "Int"),
)
wrong_root = _argument("root", lambda a: a.op in ROOTED, _other_root)


def stop(program: Program, rank: int, random: Random) -> ProgramFault | None:
    at = random.randrange(len(program.actions[rank]))
    while at and program.actions[rank][at].batch == program.actions[rank][at - 1].batch != 0:
        at -= 1
    return ProgramFault("stop", frozenset({rank}), program, stops={rank: at}, at=at)


def device_stop(program: Program, rank: int, random: Random) -> ProgramFault | None:
    places = _places(program, rank, lambda a: not a.p2p and a.op not in ROOTED)
    if not places:
        return None
    at = random.choice(places)
    return ProgramFault("device_stop", frozenset({rank}), program, device_stops={rank: at}, at=at)


def group_order(program: Program, rank: int, random: Random) -> ProgramFault | None:
    """Exchange two neighbouring collectives of different groups."""
    actions = program.actions[rank]
    places = [
        i
        for i in range(len(actions) - 2)
        if not actions[i].p2p
        and not actions[i + 1].p2p
        and actions[i].group != actions[i + 1].group
    ]
    if not places:
        return None
    at = random.choice(places)
    changed = _changed(program, rank, at, replace(actions[at + 1], joins=actions[at].joins))
    second = replace(actions[at], joins=actions[at + 1].joins)
    changed = _changed(changed, rank, at + 1, second)
    return ProgramFault("group_order", frozenset({rank}), changed, at=at)


def p2p_deadlock(program: Program, rank: int, random: Random) -> ProgramFault | None:
    """Two ranks send to each other first, then receive."""
    groups = [i for i, g in enumerate(program.groups) if rank in g.members and len(g.members) > 1]
    if not groups:
        return None
    index = random.choice(groups)
    members = program.groups[index].members
    other = random.choice([member for member in members if member != rank])
    if not program.actions[other]:
        return None
    # At a point in both programs that a collective of both has just passed.
    shared = [
        (i, j)
        for i, j in _common_operations(program, rank, other)
        if i + 1 < len(program.actions[rank]) and j + 1 < len(program.actions[other])
    ]
    if not shared:
        return None
    i, j = random.choice(shared)
    changed = program
    ops = ("send", "recv") if random.random() < 0.5 else ("recv", "send")
    for me, peer, at in ((rank, other, i), (other, rank, j)):
        exchange = [
            Action(
                op,
                index,
                site=_FOREIGN_SITE + 2 + number,
                numel=16,
                peer=members.index(peer),
                joins=True,
            )
            for number, op in enumerate(ops)
        ]
        changed = _changed(changed, me, at, changed.actions[me][at], *exchange)
    return ProgramFault("p2p_deadlock", frozenset({rank, other}), changed, at=i + 1)


def _common_operations(program: Program, a: int, b: int) -> list[tuple[int, int]]:
    """Places (in a's and in b's actions) of collectives that both take part in."""
    counts: dict[int, dict[int, int]] = {a: {}, b: {}}
    places: dict[tuple[int, int], list[int]] = {}
    for rank in (a, b):
        for at, action in enumerate(program.actions[rank]):
            if action.p2p:
                continue
            seq = counts[rank][action.group] = counts[rank].get(action.group, 0) + 1
            places.setdefault((action.group, seq), []).append(at)
    return [(at[0], at[1]) for at in places.values() if len(at) == 2]


def unmatched(program: Program, rank: int, random: Random) -> ProgramFault | None:
    """One half of a send and receive is left out."""
    places = _places(program, rank, lambda a: a.p2p and not a.batch)
    if not places:
        return None
    at = random.choice(places)
    return ProgramFault("unmatched", frozenset({rank}), _changed(program, rank, at), at=at)


def wrong_peer(program: Program, rank: int, random: Random) -> ProgramFault | None:
    """A message goes to, or is taken from, another rank than the one that waits for it."""
    places = _places(
        program,
        rank,
        lambda a: a.p2p and not a.batch and len(program.groups[a.group].members) > 2,
    )
    if not places:
        return None
    at = random.choice(places)
    action = program.actions[rank][at]
    members = program.groups[action.group].members
    others = [i for i, member in enumerate(members) if member != rank and i != action.peer]
    wrong = replace(action, peer=random.choice(others))
    return ProgramFault("stray", frozenset({rank}), _changed(program, rank, at, wrong), at=at)


FAULTS: dict[str, Callable[[Program, int, Random], ProgramFault | None]] = {
    "skip": skip,
    "extra": extra,
    "wrong_operation": wrong_operation,
    "size": wrong_size,
    "dtype": wrong_dtype,
    "root": wrong_root,
    "stop": stop,
    "device_stop": device_stop,
    "group_order": group_order,
    "p2p_deadlock": p2p_deadlock,
    "unmatched": unmatched,
    "stray": wrong_peer,
}
#: What only a device that runs beside the host can do.
NCCL_ONLY = frozenset({"device_stop"})


def make_fault(program: Program, kind: str, rank: int, random: Random) -> ProgramFault | None:
    """A fault of ``kind`` by ``rank``; None where the program has no place for it."""
    return FAULTS[kind](program, rank, random)
