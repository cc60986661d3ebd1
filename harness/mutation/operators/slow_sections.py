"""One rank computes for longer than its peers: throughout, by a factor, or now and then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import called_name, calls_of
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import VALUES, followed, preceded, strikes
from hanglab.harness.mutation.source import Statement
from hanglab.harness.mutation.truth import FaultEffect, truth

#: Below so many seconds of a statement in all, nobody could see its rank being slow.
_LEAST_SECONDS = 0.05
_WAITING = frozenset({"wait", "synchronize", "result", "join"})
_STALL_S, _STALLED_EVERY = 0.15, 5


def _sections(target: MutationTarget) -> list[Statement]:
    """Statements of the steps without communication, those that take the longest first."""
    profile = target.profile

    def seconds(statement: Statement) -> float:
        rank = profile.ranks_at(statement.line)[0]
        return profile.at(statement.line, rank).seconds

    quiet = [
        one for one in target.busiest if not _often_communicates(target, one) and not _waits(one)
    ]
    long = [one for one in quiet if seconds(one) >= _LEAST_SECONDS]
    return sorted(long, key=seconds, reverse=True)


def _waits(statement: Statement) -> bool:
    """True for ``work.wait()`` and its like: as long as peers let it take, and no section."""
    return any(called_name(call) in _WAITING for call in calls_of(statement))


def _often_communicates(target: MutationTarget, statement: Statement) -> bool:
    """True unless it communicates only now and then, as a wrapped model does in its first step."""
    ranks = range(target.profile.world_size)
    counts = [target.profile.at(statement.line, rank) for rank in ranks]
    return any(10 * one.all > one.hits for one in counts)


def _mutate_slow(target: MutationTarget, share: float, salt: int) -> Iterator[Mutation]:
    for statement in _sections(target):
        rank = target.profile.pick_rank(statement.line, salt, least=3)
        if rank is None:
            continue
        # Spent in a generator on the same line, so that samples of stacks see it there.
        waste = (
            f"{strikes(rank, 1, every=1, follow=False)} and any(t > end for end in "
            f"[{VALUES}.end_of_slowness(began, {share})] for t in iter({VALUES}.now, None))"
        )
        timed = preceded(statement, f"began = {VALUES}.now()")
        yield Mutation(
            statement,
            {
                statement.node: timed.with_changes(
                    body=[*timed.body, *followed(statement, waste).body[-1:]]
                )
            },
            rank,
            truth([Cause.SLOW_COMPUTE], [rank], effect=FaultEffect.SLOWS),
            f"rank {rank} takes {1 + share:g} times as long for line {statement.line}",
        )


def mutate_stalls(target: MutationTarget) -> Iterator[Mutation]:
    for statement in target.busiest:
        rank = target.profile.pick_rank(statement.line, salt=1, least=4 * _STALLED_EVERY)
        if rank is None:
            continue
        due = strikes(rank, 3, every=_STALLED_EVERY, follow=False)
        stall = f"{due} and {VALUES}.sleep({VALUES}.cost({_STALL_S}))"
        yield Mutation(
            statement,
            {statement.node: preceded(statement, stall)},
            rank,
            truth([Cause.SLOW_COMPUTE], [rank], effect=FaultEffect.SLOWS),
            f"rank {rank} stalls for {1000 * _STALL_S:g} ms at line {statement.line}, "
            f"each {_STALLED_EVERY}th time",
        )


OPERATORS = [
    *(
        Operator(
            f"slow_section_{1 + share:g}",
            f"a section that takes {1 + share:g} times as long on one rank",
            partial(_mutate_slow, share=share, salt=salt),
        )
        for salt, share in enumerate((0.2, 0.5, 2.0))
    ),
    Operator("intermittent_stall", "a short stall of one rank now and then", mutate_stalls),
]
