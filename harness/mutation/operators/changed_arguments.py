"""One rank gives an operation another root, reduction, dtype, size, group, tag, peer or split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import libcst as cst

from hanglab.analyzer.verdict import Cause
from hanglab.harness.mutation.communication import PARAMETERS, Communication
from hanglab.harness.mutation.operator import Mutation, MutationTarget, Operator
from hanglab.harness.mutation.rewriting import VALUES, expression, in_place_of, strikes
from hanglab.harness.mutation.truth import truth


@dataclass(frozen=True)
class ArgumentKind:
    """One argument that can be wrong."""

    name: str
    description: str
    cause: Cause
    #: Names of the argument, by the function that takes it.
    argument: Mapping[str, str]
    #: Source of the wrong value, of that of the right one and that of the group.
    wrong: Callable[[str, str], str]
    #: Whether an argument that is not given can be given wrongly; the source of its default.
    default: str | None = None
    #: A reason not to change it here.
    fits: Callable[[MutationTarget, Communication, int], bool] = field(default=lambda *_: True)


def _mutate(target: MutationTarget, kind: ArgumentKind) -> Iterator[Mutation]:
    profile, script = target.profile, target.script
    for salt, call in enumerate(target.communications):
        line = call.statement.line
        rank = profile.pick_rank(line, salt)
        name = kind.argument.get(call.function)
        if name is None or rank is None or call.statement.simple is None:
            continue
        if not kind.fits(target, call, rank):
            continue
        given = call.argument(name)
        if given is None and kind.default is None:
            continue
        group = call.argument("group")
        group_source = script.code(group.value) if group else "None"
        right = script.code(given.value) if given else str(kind.default)
        execution = profile.middle(line, rank)
        struck = in_place_of(
            given.value if given else expression(right),
            kind.wrong(right, group_source),
            strikes(rank, execution),
        )
        changes: dict[cst.CSTNode, cst.CSTNode]
        if given is not None:
            changes = {given.value: struck}
        else:
            changes = {call.node: call.with_argument(name, struck)}
        message = call.is_message
        yield Mutation(
            call.statement,
            changes,
            rank,
            truth([kind.cause], [rank], also_named=profile.peers(line, rank) if message else ()),
            f"rank {rank} calls {call.function} with another {kind.name.removeprefix('other_')} "
            f"at line {line}, execution {execution}",
        )


def _more_than_two(target: MutationTarget, call: Communication, rank: int) -> bool:
    return len(target.profile.members(call.statement.line, rank)) > 2


def _has_another_group(target: MutationTarget, call: Communication, rank: int) -> bool:
    members = target.profile.members(call.statement.line, rank)
    return bool(target.profile.other_groups(rank, members))


_IN_PLACE = dict.fromkeys(("all_reduce", "broadcast", "reduce"), "tensor")
_TENSORS = {
    **_IN_PLACE,
    "all_gather_into_tensor": "input_tensor",
    "reduce_scatter_tensor": "input",
}
_REDUCTIONS = [function for function, parameters in PARAMETERS.items() if "op" in parameters]
_ROOTS = {"broadcast": "src", "reduce": "dst", "broadcast_object_list": "src"}
_PEERS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}

KINDS = (
    ArgumentKind(
        "other_root",
        "another root on one rank",
        Cause.ROOT_MISMATCH,
        _ROOTS,
        lambda right, group: f"{VALUES}.another_rank({right}, {group})",
    ),
    ArgumentKind(
        "other_reduction",
        "another reduce operation on one rank",
        Cause.REDUCTION_MISMATCH,
        dict.fromkeys(_REDUCTIONS, "op"),
        lambda right, group: f"type({right}).{'MIN' if right.endswith('MAX') else 'MAX'}",
        default="__import__('torch').distributed.ReduceOp.SUM",
    ),
    ArgumentKind(
        "other_dtype",
        "a tensor of another dtype on one rank",
        Cause.DTYPE_MISMATCH,
        # Of others the rank's own two tensors would differ, and it would raise before it calls.
        _IN_PLACE,
        lambda right, group: f"{VALUES}.another_dtype({right})",
    ),
    ArgumentKind(
        "other_size",
        "a tensor of another size on one rank",
        Cause.SIZE_MISMATCH,
        _IN_PLACE,
        lambda right, group: f"{VALUES}.another_size({right})",
    ),
    ArgumentKind(
        "other_split",
        "another list of splits on one rank",
        Cause.SPLIT_MISMATCH,
        {"all_to_all_single": "input_split_sizes"},
        lambda right, group: f"{VALUES}.other_splits({right})",
    ),
    ArgumentKind(
        "other_group",
        "another group on one rank",
        Cause.COLLECTIVE_MISMATCH,
        dict.fromkeys([*_TENSORS, "barrier"], "group"),
        lambda right, group: f"{VALUES}.another_group({right})",
        default="None",
        fits=_has_another_group,
    ),
    ArgumentKind(
        "other_tag",
        "another tag of a message on one rank",
        Cause.P2P_UNMATCHED,
        dict.fromkeys(_PEERS, "tag"),
        lambda right, group: f"{right} + 77",
        default="0",
    ),
    ArgumentKind(
        "other_peer",
        "another peer of a message on one rank",
        Cause.P2P_UNMATCHED,
        _PEERS,
        lambda right, group: f"{VALUES}.another_peer({right}, {group})",
        fits=_more_than_two,
    ),
)

OPERATORS = [Operator(kind.name, kind.description, partial(_mutate, kind=kind)) for kind in KINDS]
