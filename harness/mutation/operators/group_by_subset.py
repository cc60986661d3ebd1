"""A process group that one rank does not help to make, or makes of other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import VALUES, in_place_of, strikes
from hanglab.harness.mutation.truth import truth


def mutate_call(target: MutationTarget) -> Iterator[Mutation]:
    profile = target.profile
    for call in target.communications:
        line = call.statement.line
        rank = profile.pick_rank(line, salt=1)
        if call.function != "new_group" or rank is None or call.statement.simple is None:
            continue
        struck = in_place_of(call.node, "None", strikes(rank, 1))
        yield Mutation(
            call.statement,
            {call.node: struck},
            rank,
            truth([Cause.GROUP_CREATION], [rank]),
            f"rank {rank} does not call new_group at line {line}",
        )


def mutate_ranks(target: MutationTarget) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for call in target.communications:
        line = call.statement.line
        rank = profile.pick_rank(line, salt=2)
        ranks = call.argument("ranks") if call.function == "new_group" else None
        if ranks is None or rank is None or call.statement.simple is None:
            continue
        fewer = f"{VALUES}.without_last({script.code(ranks.value)})"
        yield Mutation(
            call.statement,
            {ranks.value: in_place_of(ranks.value, fewer, strikes(rank, 1))},
            rank,
            truth([Cause.GROUP_CREATION], [rank]),
            f"rank {rank} makes the group of line {line} without its last member",
        )


OPERATORS = [
    Operator("group_by_subset", "a group that one rank does not help to make", mutate_call),
    Operator("group_of_others", "a group that one rank makes of other ranks", mutate_ranks),
]
