"""An exception on one rank: raised to the top, or swallowed where it leaves an operation out."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import VALUES, expression, preceded, strikes
from hanglab.harness.mutation.truth import truth

_RAISES = "{}['label']"


def mutate_raised(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.busiest:
        rank = profile.pick_rank(statement.line, salt=3, least=3)
        if rank is None:
            continue
        execution = profile.middle(statement.line, rank)
        yield Mutation(
            statement,
            {statement.node: preceded(statement, f"{strikes(rank, execution)} and {_RAISES}")},
            rank,
            truth([Cause.EXCEPTION], [rank]),
            f"rank {rank} raises at line {statement.line}, execution {execution}",
        )


def mutate_swallowed(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.busiest:
        rank = profile.pick_rank(statement.line, salt=1, least=3)
        if rank is None or statement.call is None or not profile.communicates(statement.line):
            continue
        execution = profile.middle(statement.line, rank)
        raising = preceded(statement, f"{strikes(rank, execution)} and {_RAISES}")
        assert statement.simple is not None
        swallowed = cst.With(
            items=[cst.WithItem(expression(f"{VALUES}.Swallowing()"))],
            body=cst.SimpleStatementSuite(
                body=raising.body, trailing_whitespace=statement.simple.trailing_whitespace
            ),
            leading_lines=statement.simple.leading_lines,
        )
        causes = [Cause.EXCEPTION]
        message = profile.is_message(statement.line)
        causes.append(Cause.P2P_UNMATCHED if message else Cause.SKIPPED_COLLECTIVE)
        yield Mutation(
            statement,
            {statement.node: swallowed},
            rank,
            truth(causes, [rank]),
            f"rank {rank} swallows an exception that leaves out line {statement.line}, "
            f"execution {execution}",
        )


OPERATORS = [
    Operator("exception_raised", "an exception on one rank", mutate_raised),
    Operator(
        "exception_swallowed",
        "a swallowed exception that leaves an operation out",
        mutate_swallowed,
    ),
]
