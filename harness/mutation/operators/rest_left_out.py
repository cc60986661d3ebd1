"""One rank leaves out the rest of a block: ``continue`` in a loop, ``return`` in a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import expression, only_if, strikes
from hanglab.harness.mutation.source import Statement
from hanglab.harness.mutation.truth import truth


def mutate_loops(target: MutationTarget) -> Iterator[Mutation]:
    for statement in target.busiest:
        loop = statement.loop
        if loop is not None and loop.body is not None and _is_block(loop, statement):
            yield from _mutation(target, statement, "continues early", salt=0)


def mutate_functions(target: MutationTarget) -> Iterator[Mutation]:
    for statement in target.busiest:
        function = statement.function
        if function is None or not _is_block(function, statement):
            continue
        rest = target.script.rest_of_block(statement)
        inside = [one for outer in rest for one in [outer, *target.script.inside(outer)]]
        if not any(_returns_value(one) for one in inside):
            yield from _mutation(target, statement, "returns early", salt=1)


def _mutation(target: MutationTarget, first: Statement, what: str, salt: int) -> Iterator[Mutation]:
    profile = target.profile
    rest = target.script.rest_of_block(first)
    rank = profile.pick_rank(first.line, salt, least=3)
    if rank is None or not any(profile.leads_to_communication(one.line) for one in rest):
        return
    execution = profile.middle(first.line, rank)
    changes = _guarded(target, rest, f"not (struck := {strikes(rank, execution)})")
    if changes is None:
        return
    causes = [Cause.SKIPPED_COLLECTIVE]
    if any(isinstance(one.node, cst.For | cst.While) for one in rest):
        causes.append(Cause.UNEVEN_INPUTS)
    if any(one.is_message for one in target.communications):
        causes.append(Cause.P2P_UNMATCHED)
    yield Mutation(
        first,
        changes,
        rank,
        truth(causes, [rank]),
        f"rank {rank} {what} at line {first.line}, execution {execution}",
    )


def _guarded(
    target: MutationTarget, rest: Sequence[Statement], condition: str
) -> dict[cst.CSTNode, cst.CSTNode] | None:
    """Changes by which none of these runs where the fault strikes; None if that cannot be said."""
    changes: dict[cst.CSTNode, cst.CSTNode] = {}
    for statement in rest:
        node = statement.node
        if statement.simple is not None:
            changes[node] = only_if(statement, condition)
        elif not changes:
            return None
        elif isinstance(node, cst.If) and node.orelse is None:
            changes[node.test] = expression(f"not struck and ({target.script.code(node.test)})")
        elif isinstance(node, cst.For) and node.orelse is None:
            items = target.script.code(node.iter)
            changes[node.iter] = expression(f"() if struck else ({items})")
        else:
            return None
        condition = "not struck"
    return changes


def _is_block(around: cst.FunctionDef | cst.For | cst.While, statement: Statement) -> bool:
    return isinstance(around.body, cst.IndentedBlock) and around.body.body is statement.block


def _returns_value(statement: Statement) -> bool:
    return statement.simple is not None and any(
        isinstance(small, cst.Return) and small.value is not None for small in statement.simple.body
    )


OPERATORS = [
    Operator("continue_early", "`continue` on one rank, once", mutate_loops, is_branch=True),
    Operator("return_early", "an early return on one rank, once", mutate_functions, is_branch=True),
]
