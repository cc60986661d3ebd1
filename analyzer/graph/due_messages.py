"""Messages that a rank which has nothing open is to do next, by its own rounds.

Where a ring has dropped the first messages, nobody can count which send belongs to which receive.
But a rank that took something, and by its rounds is to send next, has yet to do so: whoever waits
for that waits for the rank.  So does who sends what it is to take next, as it would have that open.
Of one that sends again and again, taking nothing in between, the last message may be on its way.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.graph.message_rounds import batch_of
from hanglab.analyzer.graph.waits import OpenOperation
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.group_history import next_in_rounds
from hanglab.recorder.case.operations import op_of

#: Indices of a group and of the operations in it that a rank issued as one.
_Step = tuple[int, frozenset[int]]


def owes_next(rank: int, awaited: Iterable[OpenOperation], lookup: CallLookup) -> bool:
    """True if a rank's rounds have next the other half of a message in which somebody waits."""
    messages = [one for one in awaited if one.seq is None and not one.any_source]
    entries = lookup.entries(rank) if messages else None
    if entries is None:
        return False
    steps = _steps(entries)
    due = next_in_rounds(steps)
    if due is None or due == steps[-1]:
        return False  # Of rounds of one step nothing tells which is the next.
    group, operations = due
    name = entries.group_names[group].name
    took = any(entries.operations[number].spec.half == "recv" for number in steps[-1][1])
    halves = {
        (one.spec.half, one.src, one.dst, one.tag)
        for one in (entries.operations[number] for number in operations)
        if took or not one.spec.sends
    }
    return any(
        (op_of(waiting.op).other_half, mine.src, mine.dst, mine.tag) in halves
        for waiting in messages
        if waiting.group.group.name == name
        for mine in waiting.waiters.values()
    )


def _steps(entries: Entries) -> list[_Step]:
    """Steps that a rank issued, in its order; a batch of messages is one step, and has no end."""
    rows = [row for row in range(len(entries)) if not entries.operation_at(row).spec.batch_end]
    numbered = groupby(rows, key=lambda row: (int(entries.group[row]), _number(entries, row)))
    return [
        (group, frozenset(int(entries.operation[row]) for row in members))
        for (group, _), members in numbered
    ]


def _number(entries: Entries, row: int) -> int:
    return batch_of(entries, row) if entries.is_p2p[row] else -1 - row
