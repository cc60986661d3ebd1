"""Reads a Program out of dumps: what each rank did, as far as its ring still has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from hanglab.analyzer.flight_recorder.columns import Arguments, RankDump
from hanglab.analyzer.matching.groups import resolve
from hanglab.analyzer.matching.merging import merge_all
from hanglab.analyzer.matching.signatures import CODE
from hanglab.analyzer.matching.summary import summarise
from hanglab.analyzer.program.program import Action, Program, ProgramGroup
from hanglab.recorder.case.operations import OpSpec, op_of


def read_program(dumps: Iterable[RankDump], *, expected: Sequence[int] | None = None) -> Program:
    """The Program that the dumps show, with global ranks from 0 on.

    Dumps do not tell what overlapped, nor where a host waited: every action is
    taken to block.  Ranks without a dump, and what rings have dropped, are left
    out, so such a Program need not run.
    """
    by_rank = {dump.rank: dump for dump in dumps}
    merged = merge_all(summarise(dump) for dump in by_rank.values())
    group_table = resolve(merged, expected)
    groups = tuple(
        ProgramGroup(g.group.name, g.members, g.group.description) for g in group_table.groups
    )
    size = max(group_table.expected, default=-1) + 1
    actions: list[tuple[Action, ...]] = [()] * size
    for rank, dump in by_rank.items():
        summary = merged.ranks[rank]
        places = {part.name: group_table.places[rank, n] for n, part in enumerate(summary.parts)}
        actions[rank] = tuple(_actions(dump, places, groups))
    return Program(groups, tuple(actions))


def _actions(
    dump: RankDump, places: dict[str, int], groups: tuple[ProgramGroup, ...]
) -> Iterable[Action]:
    entries = dump.entries
    if entries is None:
        return
    batches: dict[tuple[int, int], int] = {}
    counts: dict[tuple[int, int], int] = {}
    for index in range(len(entries)):
        if bool(entries.is_p2p[index]) and entries.p2p_seq[index] > 0:
            key = int(entries.group[index]), int(entries.p2p_seq[index])
            counts[key] = counts.get(key, 0) + 1
    for index in range(len(entries)):
        operation = entries.operations[int(entries.operation[index])]
        spec = op_of(operation.op)
        if spec.batch_end:
            continue
        place = places[entries.group_names[int(entries.group[index])].name]
        arguments = entries.arguments[int(entries.argument[index])]
        stack = int(entries.stack[index])
        frame = CODE.innermost_user(entries.stacks[stack]) if stack >= 0 else None
        key = int(entries.group[index]), int(entries.p2p_seq[index])
        batch = 0
        if spec.p2p and counts.get(key, 0) > 1:
            batch = batches.setdefault(key, len(batches) + 1)
        other = operation.dst if spec.sends else operation.src
        yield Action(
            op=spec.program_name,
            group=place,
            site=frame.line if frame is not None else 0,
            numel=numel_of(spec, arguments, len(groups[place].members)),
            dtype=next(iter(arguments.input_dtypes + arguments.output_dtypes), "Float"),
            root=arguments.root,
            peer=other if spec.p2p and other >= 0 else None,
            batch=batch,
        )


def numel_of(spec: OpSpec, arguments: Arguments, members: int) -> int:
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
