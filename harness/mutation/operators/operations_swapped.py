"""One rank calls two operations that follow each other in the opposite order."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import called_name, is_communication_call
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import expression, strikes
from hanglab.harness.mutation.source import Statement
from hanglab.harness.mutation.truth import truth


def mutate(target: MutationTarget) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for first in target.statements:
        second = _next(target, first)
        rank = profile.pick_rank(first.line, salt=1)
        if second is None or first.call is None or second.call is None or rank is None:
            continue
        execution = profile.middle(first.line, rank)
        one, two = script.code(first.call), script.code(second.call)
        if "\n" in one + two:
            continue
        changes: dict[cst.CSTNode, cst.CSTNode] = {
            first.call: expression(
                f"({two} if (swapped := {strikes(rank, execution)}) else {one})"
            ),
            second.call: expression(f"({one} if swapped else {two})"),
        }
        messages = profile.is_message(first.line) or profile.is_message(second.line)
        members = profile.members(first.line, rank), profile.members(second.line, rank)
        if messages:
            causes = [Cause.P2P_DEADLOCK, Cause.P2P_UNMATCHED]
        elif members[0] != members[1]:
            causes = [Cause.GROUP_ORDER]
        else:
            causes = [Cause.COLLECTIVE_MISMATCH]
            if called_name(first.call) == called_name(second.call):
                # One function with other arguments: what differs is the reduction, if anything.
                causes.append(Cause.REDUCTION_MISMATCH)
        peers = [*profile.peers(first.line, rank), *profile.peers(second.line, rank)]
        yield Mutation(
            first,
            changes,
            rank,
            truth(causes, [rank], also_named=peers if messages else ()),
            f"rank {rank} swaps lines {first.line} and {second.line}, execution {execution}",
        )


def _next(target: MutationTarget, first: Statement) -> Statement | None:
    """The communication right behind one, in the same block."""
    if not is_communication_call(first, target.communications):
        return None
    rest = target.script.rest_of_block(first)[1:2]
    fits = rest and is_communication_call(rest[0], target.communications)
    return rest[0] if fits and target.profile.communicates(first.line) else None


OPERATOR = Operator("operations_swapped", "two operations swapped on one rank", mutate)
