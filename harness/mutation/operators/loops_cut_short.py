"""One rank makes fewer rounds of a loop than its peers: its input ends, or it leaves, or skips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import POINT, expression
from hanglab.harness.mutation.source import Statement
from hanglab.harness.mutation.truth import truth

#: Source of the iterable as it is changed, from its own, the rank, the loop's run and its rounds.
Change = Callable[[str, int, int, int], str]


def _mutate(target: MutationTarget, change: Change, what: str, salt: int) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for statement in script.statements:
        node = statement.node
        if not isinstance(node, cst.For) or not isinstance(node.body, cst.IndentedBlock):
            continue
        first = script.by_node[node.body.body[0]]
        rank = profile.pick_rank(first.line, salt, least=3)
        inside = script.inside(statement)
        if rank is None or not any(profile.leads_to_communication(one.line) for one in inside):
            continue
        runs, rounds = _runs(target, statement, first, rank)
        if rounds < 2:
            continue
        causes = [Cause.UNEVEN_INPUTS, Cause.SKIPPED_COLLECTIVE]
        if any(one.is_message for one in target.communications):
            causes.append(Cause.P2P_UNMATCHED)
        changed = change(script.code(node.iter), rank, runs // 2 + 1 if runs > 1 else 1, rounds)
        yield Mutation(
            statement,
            {node.iter: expression(changed)},
            rank,
            truth(causes, [rank]),
            f"rank {rank} {what} of the loop at line {statement.line}",
        )


def _runs(target: MutationTarget, loop: Statement, first: Statement, rank: int) -> tuple[int, int]:
    """Number of times that the loop is begun on the rank, and of the rounds that it makes then."""
    rounds = target.profile.at(first.line, rank).hits
    # Its header runs once more than its body each time.
    runs = max(1, target.profile.at(loop.line, rank).hits - rounds)
    return runs, rounds // runs


def _shortened(items: str, rank: int, run: int, rounds: int) -> str:
    return f"{POINT}.shortened({items}, {rank}, {run})"


def _stopping(items: str, rank: int, run: int, rounds: int) -> str:
    return f"{POINT}.stopping({items}, {rank}, {run}, after={rounds // 2})"


def _passing_over(items: str, rank: int, run: int, rounds: int) -> str:
    return f"{POINT}.passing_over({items}, {rank}, {run}, number={rounds // 2})"


OPERATORS = [
    Operator(
        "one_step_less",
        "one round of a loop less on one rank",
        partial(_mutate, change=_shortened, what="makes one round less", salt=0),
        is_branch=True,
    ),
    Operator(
        "loop_left_early",
        "a loop left in its middle by one rank",
        partial(_mutate, change=_stopping, what="makes half of the rounds", salt=1),
        is_branch=True,
    ),
    Operator(
        "round_passed_over",
        "a round of a loop passed over by one rank (`continue` at its begin)",
        # No branch: its ranks go on in the loop, with another value of its variable.
        partial(_mutate, change=_passing_over, what="passes over a round", salt=2),
    ),
]
