"""One rank calls an operation twice, once."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import is_communication_call
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import preceded, strikes
from hanglab.harness.mutation.truth import truth


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for statement in target.statements:
        rank = profile.pick_rank(statement.line, salt=2)
        if rank is None or not profile.communicates(statement.line):
            continue
        if not is_communication_call(statement, target.communications):
            continue
        execution = profile.middle(statement.line, rank)
        assert statement.call is not None
        again = script.code(statement.call)
        message = profile.is_message(statement.line)
        cause = Cause.P2P_UNMATCHED if message else Cause.COLLECTIVE_MISMATCH
        yield Mutation(
            statement,
            {statement.node: preceded(statement, f"{strikes(rank, execution)} and {again}")},
            rank,
            truth([cause], [rank]),
            f"rank {rank} calls line {statement.line} twice at its execution {execution}",
        )


OPERATOR = Operator(
    "collective_doubled", "an operation called twice by one rank, once", mutate, is_branch=True
)
