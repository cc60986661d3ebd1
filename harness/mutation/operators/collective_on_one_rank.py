"""An operation of all ranks moves into a branch that one rank alone takes, once."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import is_communication_call
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import POINT, only_if
from hanglab.harness.mutation.truth import Answer, truth


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for statement in target.statements:
        ranks = profile.ranks_at(statement.line)
        rank = profile.pick_rank(statement.line, salt=0)
        if rank is None or len(ranks) < 3 or not profile.communicates(statement.line):
            continue
        members = profile.members(statement.line, rank)
        if profile.is_message(statement.line) or members != ranks:
            continue
        if not is_communication_call(statement, target.communications):
            continue
        execution = profile.middle(statement.line, rank)
        others = [other for other in ranks if other != rank]
        # Who is odd is the one that calls; that the others leave it out is the same said otherwise.
        yield Mutation(
            statement,
            {
                statement.node: only_if(
                    statement, f"not {POINT}.strikes_all_but({rank}, {execution})"
                )
            },
            rank,
            truth(
                [Cause.COLLECTIVE_MISMATCH],
                [rank],
                Answer([Cause.SKIPPED_COLLECTIVE], others),
            ),
            f"rank {rank} alone runs line {statement.line} at execution {execution}",
        )


OPERATOR = Operator(
    "collective_on_one_rank",
    "an operation moved into a branch that one rank takes",
    mutate,
    is_branch=True,
)
