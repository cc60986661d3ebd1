"""Shrinks a Program that hangs, while a test says that it still hangs for the same reason.

Each phase leaves out one kind of thing, and what it accepts is what the next begins with; ranks
and operations are left out by delta debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from hanglab.analyzer.program.delta_debugging import ddmin
from hanglab.analyzer.program.program import Action, Program
from hanglab.analyzer.program.reduced_program import (
    ProgramOperation,
    ReducedProgram,
    keep_operations,
    keep_ranks,
    operations_of,
    without_call,
    without_unused_groups,
)
from hanglab.analyzer.program.simulation import Backend, simulate

#: Whether a program still hangs for the same reason.
Test = Callable[[ReducedProgram], bool]

#: How many operations that went well are kept of each rank, before those that did not.
FINISHED_KEPT = (0, 2, 8, 32, 128)
#: Operations of one round of an inner loop.
_ROUNDS_OF = (1, 2, 3)
#: Ranks that are tried beside the culprits before all are.
_PEERS = (1, 2, 3)


def last_operations(reduced: ReducedProgram, backend: Backend = "gloo") -> Iterator[ReducedProgram]:
    """The program from its last operations on, of which each rank finished so many; then of more.

    Each is larger than the one before; the last is the whole program.
    """
    program = reduced.program
    run = simulate(program, backend)
    done: list[bool] = []
    found = operations_of(program)
    for operation in found:
        calls = [(run.ranks[rank].issued, index) for rank, index in operation.places]
        done.append(all(index < len(issued) and issued[index].done for issued, index in calls))
    size = 0
    for finished_kept in FINISHED_KEPT:
        left = [finished_kept] * program.world_size
        kept: list[ProgramOperation] = []
        for operation, finished in zip(reversed(found), reversed(done), strict=True):
            ranks = {rank for rank, _ in operation.places}
            if not finished or any(left[rank] > 0 for rank in ranks):
                kept.append(operation)
                for rank in ranks if finished else ():
                    left[rank] -= 1
        if len(kept) > size:
            size = len(kept)
            yield keep_operations(reduced, kept)
    if size < len(found):
        yield reduced


def fewer_ranks(reduced: ReducedProgram, holds: Test, culprits: Collection[int]) -> ReducedProgram:
    """Leaves ranks out; ``culprits`` are ranks of the whole job, and are tried to be kept."""
    world = range(reduced.program.world_size)
    named = [rank for rank in world if reduced.ranks[rank] in culprits]
    others = [rank for rank in world if rank not in named]

    def test(kept: Sequence[int]) -> bool:
        return len(kept) > 1 and holds(keep_ranks(reduced, kept))

    guesses = [named + others[:peers] for peers in _PEERS if peers < len(others)]
    # Of several that wait for each other in pairs, one pair is enough.
    guesses += [[named[0], other] for other in named[1:] if len(named) > 2]
    begin = next((guess for guess in guesses if test(guess)), [*named, *others])
    return keep_ranks(reduced, ddmin(begin, test))


def exactly_ranks(
    reduced: ReducedProgram, holds: Test, culprits: Collection[int], size: int
) -> ReducedProgram | None:
    """The program of ``size`` of its ranks; None where so few do not hang for the same reason."""
    fewest = fewer_ranks(reduced, holds, culprits)
    kept = [rank for rank, name in enumerate(reduced.ranks) if name in fewest.ranks]
    if len(kept) > size:
        return None
    found: ReducedProgram | None = fewest if len(kept) == size else None
    for rank in range(reduced.program.world_size):
        if len(kept) >= size:
            break
        if rank in kept:
            continue
        larger = keep_ranks(reduced, [*kept, rank])
        if holds(larger):
            kept.append(rank)
            found = larger if len(kept) == size else None
    return found


def fewer_operations(reduced: ReducedProgram, holds: Test) -> ReducedProgram:
    def test(kept: Sequence[ProgramOperation]) -> bool:
        return holds(keep_operations(reduced, kept))

    return keep_operations(reduced, ddmin(operations_of(reduced.program), test))


def shorter_rounds(reduced: ReducedProgram, holds: Test) -> ReducedProgram:
    """Leaves one round out of every inner loop at once.

    Where a rank left a call out of one round of an outer loop, what tells is that its rounds are
    alike: none of them can be made shorter alone.
    """
    for length in _ROUNDS_OF:
        while True:
            smaller = _without_one_round(reduced, length)
            if smaller is None or not holds(smaller):
                break
            reduced = smaller
    return reduced


def _without_one_round(reduced: ReducedProgram, length: int) -> ReducedProgram | None:
    """Without one of each series of equal rounds of so many operations; None if there is none."""
    operations = operations_of(reduced.program)
    kinds = _kinds(reduced.program, operations)
    kept: list[ProgramOperation] = []
    place = 0
    while place < len(operations):
        body, end = kinds[place : place + length], place + length
        while kinds[end : end + length] == body:
            end += length
        if end == place + length:
            kept.append(operations[place])
            place += 1
            continue
        # The last may be the one that never ended.
        kept += operations[place + length : end]
        place = end
    return keep_operations(reduced, kept) if len(kept) < len(operations) else None


def fewer_lines(reduced: ReducedProgram, holds: Test) -> ReducedProgram:
    """Leaves out what a line of the program did in all rounds at once, or in all but the last.

    Rounds that tell by being alike have to stay so.
    """
    for kind in dict.fromkeys(_kinds(reduced.program, operations_of(reduced.program))):
        operations = operations_of(reduced.program)
        kinds = _kinds(reduced.program, operations)
        places = [place for place, one in enumerate(kinds) if one == kind]
        for left_out in (places, places[:-1]) if len(places) > 1 else ():
            kept = [one for place, one in enumerate(operations) if place not in left_out]
            smaller = keep_operations(reduced, kept)
            if holds(smaller):
                reduced = smaller
                break
    return reduced


#: Lines, operations and groups of the calls that meet in an operation.
_Kind = frozenset[tuple[int, str, str]]


def _kinds(program: Program, operations: Sequence[ProgramOperation]) -> list[_Kind]:
    return [
        frozenset(
            (action.site, action.op, program.groups[action.group].name)
            for action in (program.actions[rank][index] for rank, index in operation.places)
        )
        for operation in operations
    ]


def fewer_calls(reduced: ReducedProgram, holds: Test) -> ReducedProgram:
    """Leaves single calls out, the last first, as nothing can follow from what comes after."""
    for rank in range(reduced.program.world_size):
        for index in reversed(range(len(reduced.program.actions[rank]))):
            smaller = without_call(reduced, (rank, index))
            if holds(smaller):
                reduced = smaller
    return reduced


def fewer_groups(reduced: ReducedProgram, holds: Test) -> ReducedProgram:
    """Has groups of the same members be one."""
    place = 0
    while place < len(reduced.program.groups):
        groups = reduced.program.groups
        likes = (
            n
            for n, g in enumerate(groups[:place])
            # What some ranks alone have made counts among all that they make.
            if g.members == groups[place].members and not groups[place].makers
        )
        like = next(likes, None)
        if like is not None:
            smaller = without_unused_groups(_changed(reduced, _to_group(place, like)))
            if holds(smaller):
                reduced = smaller
                continue
        place += 1
    return reduced


def simpler_arguments(reduced: ReducedProgram, holds: Test) -> ReducedProgram:
    """Makes arguments alike and small, and has hosts wait where they went on."""
    for change in _simplifications(reduced):
        simpler = _changed(reduced, change)
        if simpler != reduced and holds(simpler):
            reduced = simpler
    return reduced


_Change = Callable[[Action], Action]


def _to_group(old: int, new: int) -> _Change:
    return lambda action: replace(action, group=new) if action.group == old else action


def _simplifications(reduced: ReducedProgram) -> Iterator[_Change]:
    yield lambda action: replace(action, overlap=False)
    yield lambda action: replace(action, thread=0)
    yield lambda action: replace(action, splits=None)
    yield lambda action: replace(action, reduction="")
    yield lambda action: replace(action, dtype="Float")
    yield lambda action: action if action.root is None else replace(action, root=0)
    yield lambda action: action if action.numel == 0 else replace(action, numel=1)
    actions = [action for mine in reduced.program.actions for action in mine]
    sizes = sorted({action.numel for action in actions} - {0, 1})
    for small, size in enumerate(sizes, start=1):
        yield _sized(size, 1)
        yield _sized(size, small)
    for site in sorted({action.site for action in actions}):
        yield _waiting(site)


def _waiting(site: int) -> _Change:
    return lambda action: replace(action, overlap=False) if action.site == site else action


def _sized(old: int, new: int) -> _Change:
    return lambda action: replace(action, numel=new) if action.numel == old else action


def _changed(reduced: ReducedProgram, change: _Change) -> ReducedProgram:
    actions = tuple(tuple(map(change, mine)) for mine in reduced.program.actions)
    return reduced.with_program(replace(reduced.program, actions=actions))


def _fewer_calls_of_all(
    reduced: ReducedProgram, holds: Test, culprits: Collection[int]
) -> ReducedProgram:
    reduced = shorter_rounds(fewer_operations(reduced, holds), holds)
    return fewer_calls(fewer_lines(reduced, holds), holds)


def _simpler(reduced: ReducedProgram, holds: Test, culprits: Collection[int]) -> ReducedProgram:
    return simpler_arguments(fewer_groups(reduced, holds), holds)


Phase = Callable[[ReducedProgram, Test, Collection[int]], ReducedProgram]
#: What is left out or made simpler, in words, and how.
PHASES: tuple[tuple[str, Phase], ...] = (
    ("ranks", fewer_ranks),
    ("operations", _fewer_calls_of_all),
    ("groups and arguments", _simpler),
)
#: Phases begin again until none finds anything, and so often at most.
ROUNDS = 4
