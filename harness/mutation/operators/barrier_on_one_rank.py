"""A barrier in a branch that one rank alone takes."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import VALUES, preceded, strikes
from hanglab.harness.mutation.truth import truth


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.busiest:
        rank = profile.pick_rank(statement.line, salt=0, least=3)
        if rank is None:
            continue
        execution = profile.middle(statement.line, rank)
        yield Mutation(
            statement,
            {
                statement.node: preceded(
                    statement, f"{strikes(rank, execution)} and {VALUES}.barrier()()"
                )
            },
            rank,
            truth([Cause.COLLECTIVE_MISMATCH], [rank]),
            f"rank {rank} alone enters a barrier at line {statement.line}, execution {execution}",
        )


OPERATOR = Operator("barrier_on_one_rank", "a barrier in one rank's branch", mutate, is_branch=True)
