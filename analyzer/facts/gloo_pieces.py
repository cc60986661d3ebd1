"""Pieces in which gloo sends a tensor, and operations that so many bytes are a piece of."""

from __future__ import annotations

from math import prod

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.thresholds import GLOO_PIECES
from hanglab.analyzer.matching.calls import Call
from hanglab.recorder.case.operations import op_of

_ITEM_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Byte": 1, "Char": 1, "Bool": 1,
    "Short": 2, "Int": 4, "Long": 8,
}  # fmt: skip


def bytes_of(call: Call) -> int | None:
    """Bytes of the call's one tensor; None where they are not known."""
    given = call.arguments
    item = _ITEM_BYTES.get(given.input_dtypes[0]) if given.input_dtypes else None
    if item is None or len(given.input_sizes) != 1:
        return None
    return prod(given.input_sizes[0]) * item


def is_piece(call: Call, size: int) -> bool:
    """True if so many bytes are what gloo sends at a time of the call's tensor."""
    given = call.arguments
    if len(given.input_sizes) != 1 or not given.input_dtypes:
        return False
    item = _ITEM_BYTES.get(given.input_dtypes[0])
    elements = prod(given.input_sizes[0])
    if item is None or not elements:
        return False
    if op_of(call.op).program_name == "all_gather" and 2 * size == elements * item:
        return True  # It halves bytes, also within an element.
    world = len(call.group.members)
    # Whole, in halves, or cut for each rank, and by the rings of reductions once more.
    times = GLOO_PIECES if "reduce" in call.op else 1
    pieces = [1, 2, *(world * one for one in range(1, times + 1))]
    return any(-(-elements // count) * item == size for count in pieces)


def operation_of_piece(facts: CaseFacts, now: Call, size: int) -> Call | None:
    """The latest other operation of the group, before ``now``, of which so many bytes are one."""
    found: Call | None = None
    for rank in now.group.members:
        dump = facts.dumps.get(rank)
        if dump is None or dump.entries is None:
            continue
        entries = dump.entries
        for row in np.flatnonzero(entries.in_group(now.group.name) & ~entries.is_p2p):
            seq = int(entries.seq[row])
            if seq >= (now.seq or 0) or (found is not None and seq <= (found.seq or 0)):
                continue
            given = entries.arguments_at(int(row))
            call = Call(rank, now.group, seq, entries.operation_at(int(row)).op, arguments=given)
            alike = (call.op, given.input_sizes) == (now.op, now.arguments.input_sizes)
            if not alike and is_piece(call, size):
                found = call
    return found
