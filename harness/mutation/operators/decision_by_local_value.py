"""Ranks decide by a value of their own whether they take part, such as a loss or a clock."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import only_if, strikes
from hanglab.harness.mutation.truth import truth


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.statements:
        rank = profile.pick_rank(statement.line, salt=2, least=4)
        if statement.call is None or rank is None or not profile.communicates(statement.line):
            continue
        if profile.is_message(statement.line):
            continue
        execution = max(2, profile.at(statement.line, rank).hits // 4)
        yield Mutation(
            statement,
            {statement.node: only_if(statement, f"not {strikes(rank, execution, every=2)}")},
            rank,
            truth([Cause.SKIPPED_COLLECTIVE], [rank]),
            f"rank {rank} leaves out line {statement.line} at each second execution "
            f"from {execution} on, as by a value of its own",
        )


OPERATOR = Operator(
    "decision_by_local_value",
    "taking part decided by a value that differs per rank",
    mutate,
    is_branch=True,
)
