"""Entries of dumps as actions of a Program."""

from __future__ import annotations

from math import prod

from hanglab.analyzer.flight_recorder.columns import Arguments, Entries
from hanglab.analyzer.program.program import Action, ProgramGroup
from hanglab.recorder.case.operations import OpSpec


def action_of(
    entries: Entries, row: int, groups: tuple[ProgramGroup, ...], group: int, site: int
) -> Action:
    """Action of the entry, which is of the group with number ``group``."""
    operation, given = entries.operation_at(row), entries.arguments_at(row)
    spec = operation.spec
    return Action(
        op=spec.program_name,
        group=group,
        site=site,
        numel=_numel(spec, given, len(groups[group].members)),
        dtype=next(iter(given.input_dtypes + given.output_dtypes), "Float"),
        root=given.root,
        peer=operation.peer if spec.p2p and operation.peer >= 0 else None,
        reduction=given.reduce_op,
        splits=given.splits,
    )


def _numel(spec: OpSpec, arguments: Arguments, members: int) -> int:
    """Elements of the rank's own tensor."""
    inputs = sum(prod(shape) for shape in arguments.input_sizes)
    outputs = sum(prod(shape) for shape in arguments.output_sizes)
    if spec.dataless:
        return 0
    if spec.scatters:
        return outputs if outputs else inputs // max(1, members)
    if spec.splits:
        return inputs // max(1, members)
    return inputs if inputs else outputs
