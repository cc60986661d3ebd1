"""Ends of ranks that have no call left to wait in, as far as a cause tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum

from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.reduced_program import ReducedProgram
from hanglab.analyzer.program.simulation import Backend, simulate
from hanglab.analyzer.recorded_endings import RecordedEnding
from hanglab.analyzer.verdict import Cause
from hanglab.harness.rank_endings import function_of


class RankEnding(Enum):
    #: It waits in a call, or comes to the end of the script.
    ITSELF = "itself"
    #: It stands still where its next call would be.
    STANDS_STILL = "stands still"
    #: It stands still behind the loop in which its peers are.
    BEHIND_LOOP = "stands still behind the loop"
    #: It raises an exception where its next call would be.
    RAISES = "raises"
    #: It waits in new_group for those who do not create the group.
    CREATES_GROUP = "waits in new_group"


#: What culprits may do, and what their peers may, where they have no call left.
_OF_CAUSE: dict[Cause, tuple[tuple[RankEnding, RankEnding], ...]] = {
    Cause.UNEVEN_INPUTS: (
        (RankEnding.BEHIND_LOOP, RankEnding.STANDS_STILL),
        (RankEnding.ITSELF, RankEnding.STANDS_STILL),
    ),
    Cause.EXCEPTION: ((RankEnding.RAISES, RankEnding.STANDS_STILL),),
    Cause.GROUP_CREATION: (
        (RankEnding.STANDS_STILL, RankEnding.CREATES_GROUP),
        (RankEnding.CREATES_GROUP, RankEnding.STANDS_STILL),
    ),
    Cause.SKIPPED_COLLECTIVE: (
        (RankEnding.STANDS_STILL, RankEnding.STANDS_STILL),
        (RankEnding.BEHIND_LOOP, RankEnding.STANDS_STILL),
    ),
}
_OF_OTHERS = ((RankEnding.STANDS_STILL, RankEnding.STANDS_STILL),)


#: How a rank ends in a script: as evidence says, or as a cause lets one guess.
Ending = RankEnding | RecordedEnding


def endings_of(
    reduced: ReducedProgram,
    cause: Cause,
    culprits: Collection[int],
    ended: Collection[int],
    recorded: Mapping[int, RecordedEnding],
    backend: Backend = "gloo",
) -> Iterator[tuple[Ending, ...]]:
    """Endings of all ranks: as evidence says, then the likeliest for the cause first.

    ``culprits``, those who ended by themselves (``ended``) and those of whom evidence says how
    (``recorded``) are ranks of the whole job.
    """
    idle = idle_ranks(reduced.program, backend)
    told: list[tuple[Ending, ...]] = []
    if any(reduced.ranks[rank] in recorded for rank in idle):
        of_evidence = tuple(
            RankEnding.ITSELF
            if rank not in idle
            else _as_recorded(recorded[name])
            if name in recorded
            else RankEnding.STANDS_STILL
            for rank, name in enumerate(reduced.ranks)
        )
        told.append(of_evidence)
        yield of_evidence
    for of_culprit, of_peer in _OF_CAUSE.get(cause, _OF_OTHERS):
        endings: tuple[Ending, ...] = tuple(
            RankEnding.ITSELF
            if rank not in idle or (name in ended and cause not in _OF_CAUSE)
            else of_culprit
            if name in culprits
            else of_peer
            for rank, name in enumerate(reduced.ranks)
        )
        if endings not in told:
            told.append(endings)
            yield endings


def _as_recorded(ending: RecordedEnding) -> Ending:
    return ending if function_of(ending.kind) is not None else RankEnding.BEHIND_LOOP


def idle_ranks(program: Program, backend: Backend = "gloo") -> set[int]:
    """Ranks that wait in none of their calls."""
    run = simulate(program, backend)
    return {rank for rank, state in enumerate(run.ranks) if all(one.done for one in state.issued)}
