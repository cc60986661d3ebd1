"""One rank calls another operation in the place of the right one."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import in_place_of, strikes
from hanglab.harness.mutation.truth import truth

#: Each with what is called instead: the same tensor, so that nothing else is wrong.
_INSTEAD = {
    "all_reduce": ("broadcast", "tensor"),
    "broadcast": ("all_reduce", "tensor"),
    "reduce": ("all_reduce", "tensor"),
    "barrier": ("all_reduce", ""),
    "all_gather_into_tensor": ("all_reduce", "input_tensor"),
}


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for call in target.communications:
        statement = call.statement
        rank = profile.pick_rank(statement.line, salt=1)
        if call.function not in _INSTEAD or statement.call is not call.node or rank is None:
            continue
        other, tensor = _INSTEAD[call.function]
        given = call.argument(tensor) if tensor else None
        if tensor and given is None:
            continue
        members = profile.members(statement.line, rank)
        group = call.argument("group")
        words = [script.code(given.value) if given else "__import__('torch').zeros(1)"]
        words += [f"src={members[0]}"] if other == "broadcast" else []
        words += [f"group={script.code(group.value)}"] if group else []
        execution = profile.middle(statement.line, rank)
        called = f"__import__('torch').distributed.{other}({', '.join(words)})"
        yield Mutation(
            statement,
            {call.node: in_place_of(call.node, called, strikes(rank, execution))},
            rank,
            truth([Cause.COLLECTIVE_MISMATCH], [rank]),
            f"rank {rank} calls {other} instead of {call.function} at line {statement.line}, "
            f"execution {execution}",
        )


OPERATOR = Operator("other_operation", "another operation called by one rank", mutate)
