"""One rank leaves an operation out, once."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import only_if, strikes
from hanglab.harness.mutation.truth import truth


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.statements:
        rank = profile.pick_rank(statement.line, salt=1)
        if statement.call is None or rank is None or not profile.communicates(statement.line):
            continue
        is_call = any(one.node is statement.call for one in target.communications)
        if not is_call and profile.at(statement.line, rank).hits < 3:
            continue  # a whole training, such as trainer.fit()
        execution = profile.middle(statement.line, rank)
        message = profile.is_message(statement.line)
        cause = Cause.P2P_UNMATCHED if message else Cause.SKIPPED_COLLECTIVE
        yield Mutation(
            statement,
            {statement.node: only_if(statement, f"not {strikes(rank, execution)}")},
            rank,
            truth([cause], [rank]),
            f"rank {rank} leaves out what line {statement.line} communicates, "
            f"at its execution {execution}",
        )


OPERATOR = Operator(
    "collective_left_out", "an operation left out by one rank, once", mutate, is_branch=True
)
