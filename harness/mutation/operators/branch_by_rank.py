"""One rank takes the other way at a branch that leads to operations, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import called_name, calls_of
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import expression, strikes
from hanglab.harness.mutation.source import Statement
from hanglab.harness.mutation.truth import truth

_COLLECTIVE = (Cause.COLLECTIVE_MISMATCH, Cause.SKIPPED_COLLECTIVE)
_MESSAGE = (Cause.P2P_UNMATCHED, Cause.P2P_DEADLOCK)


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for statement in script.statements:
        node = statement.node
        rank = profile.pick_rank(statement.line, salt=1)
        if not isinstance(node, cst.If) or rank is None or not _is_in_function(statement.function):
            continue
        inside = script.inside(statement)
        if not any(profile.leads_to_communication(one.line) for one in inside):
            continue
        messages = _leads_to_messages(target, inside)
        execution = profile.middle(statement.line, rank)
        # A boolean that differs from the strike is the test, or its contrary where that strikes.
        test = f"{strikes(rank, execution)} != bool({script.code(node.test)})"
        peers = {peer for one in inside for peer in profile.peers(one.line, rank)}
        yield Mutation(
            statement,
            {node.test: expression(test)},
            rank,
            truth([*(_MESSAGE if messages else ()), *_COLLECTIVE], [rank], also_named=peers),
            f"rank {rank} takes the other way at line {statement.line}, execution {execution}",
        )


def _leads_to_messages(target: MutationTarget, statements: Sequence[Statement]) -> bool:
    """True if one of them sends or receives, or calls a function of the script that does."""
    called = {called_name(call) for one in statements for call in calls_of(one)}
    inside = [
        one
        for one in target.script.statements
        if one.function is not None and one.function.name.value in called
    ]
    return any(target.profile.is_message(one.line) for one in (*statements, *inside))


def _is_in_function(function: cst.FunctionDef | None) -> bool:
    return function is not None


OPERATOR = Operator(
    "branch_by_rank", "a branch with operations taken wrongly by one rank", mutate, is_branch=True
)
