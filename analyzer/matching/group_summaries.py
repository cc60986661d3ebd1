"""One group's part of a rank's summary: its collectives, and what the ring lost of them."""

from __future__ import annotations

from math import prod

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Bool, Entries, GroupStatus, Int32, Int64
from hanglab.analyzer.matching.entry_queries import distinct
from hanglab.analyzer.matching.summary import GAP, GroupSummary
from hanglab.analyzer.matching.thresholds import LONGEST_RUN, UNFINISHED_BY_STATUS
from hanglab.recorder.case.operations import op_of


def extend(part: GroupSummary, enqueued: int, completed: int) -> None:
    """The status may tell of operations after the last entry (only active ones, a cut file)."""
    entered = part.entered or 0
    if enqueued > entered:
        part.entered = enqueued
        later = range(max(entered, completed) + 1, enqueued + 1)
        part.unfinished += tuple(later[-UNFINISHED_BY_STATUS:])


def read_gaps(
    part: GroupSummary, entries: Entries, rows: Int64, collective: Int64, boundary: bool
) -> None:
    """Gloo numbers sends and receives too, and records none of them."""
    numbers = entries.op_id[rows]
    numbers, _ = distinct(numbers[numbers > 0])
    gapless = len(numbers) > 0 and int(numbers[0]) == 1 and int(numbers[-1]) == len(numbers)
    part.counted = gapless
    if gapless and part.entered is None and (boundary or not part.hidden):
        # All that it ever did in the group is there, and it is point-to-point.
        part.entered = 0
    if not boundary and not part.p2p:
        given = collective[entries.op_id[collective] > 0]
        part.hidden = bool((entries.op_id[given] > entries.seq[given]).any())


def member_count(entries: Entries, rows: Int64) -> int:
    """Number of members of the group, where what one gives is told beside what all give.

    Tensors of one operation are of one size on all members; 0 where accounts differ.
    """
    count = len(entries.arguments)
    kinds, _ = distinct(entries.operation[rows].astype(np.int64) * count + entries.argument[rows])
    found: set[int] = set()
    for kind in kinds.tolist():
        operation, arguments = entries.operations[kind // count], entries.arguments[kind % count]
        mine = sum(prod(shape) for shape in arguments.input_sizes)
        all_of_it = sum(prod(shape) for shape in arguments.output_sizes)
        spec = op_of(operation.op)
        if spec.scatters:
            mine, all_of_it = all_of_it, mine
        elif not spec.gathers:
            continue
        if mine and all_of_it and all_of_it % mine == 0:
            found.add(all_of_it // mine)
    return found.pop() if len(found) == 1 else 0


def may_have_lost(part: GroupSummary) -> bool:
    """True if the ring may have dropped collectives of the group that had not finished."""
    if part.length:
        return part.base > 1 and part.base in part.unfinished
    # Sends and receives tell of collectives that have no entry any more.
    return bool(part.entered)


def accounted(
    part: GroupSummary,
    entries: Entries,
    rows: Int64,
    status: GroupStatus | None,
    done: Bool,
) -> bool:
    """True if the group's status proves that nothing older than its first entry is unfinished."""
    if part.counted:
        return True
    still_open = rows[~done[rows]]
    if not len(still_open):
        if part.length or not part.entered:
            return True
        return status is not None and status.enqueued == status.completed
    first = int(still_open[0])
    number = int((entries.p2p_seq if bool(entries.is_p2p[first]) else entries.seq)[first])
    if part.gloo or status is None:
        return number == 1 and not part.p2p
    completed = status.completed or 0
    if part.p2p:
        # It may be the number of either kind of operation.
        return completed == number - 1 != int(entries.seq[first])
    return completed >= number - 1


def read_collectives(part: GroupSummary, seqs: Int64, codes: Int32, done: Bool) -> None:
    if not len(seqs):
        return
    if len(seqs) > 1 and not bool((np.diff(seqs) > 0).all()):
        # Several entries under one number are a batch: the last one stands for it,
        # since the ring may have dropped its beginning.
        order = np.argsort(seqs, kind="stable")
        seqs, codes, done = seqs[order], codes[order], done[order]
        last = np.append(seqs[1:] != seqs[:-1], True)
        firsts = np.flatnonzero(np.append(True, last[:-1]))
        done = np.logical_and.reduceat(done, firsts)
        seqs, codes = seqs[last], codes[last]
    part.entered = int(seqs[-1])
    part.unfinished = tuple(seqs[~done].tolist())
    if int(seqs[-1]) - int(seqs[0]) + 1 != len(seqs):
        near = seqs > seqs[-1] - LONGEST_RUN
        seqs, codes = seqs[near], codes[near]
    part.base = int(seqs[0])
    part.length = span = int(seqs[-1]) - part.base + 1
    if span == len(seqs):
        part.codes = np.ascontiguousarray(codes)
    else:
        part.codes = np.full(span, GAP, dtype=np.int32)
        part.codes[seqs - part.base] = codes
