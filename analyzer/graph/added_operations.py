"""Operations that one rank alone is in, against its own order, while its peers have nothing open.

Whoever is waited for there would be absent without a reason, all of them at once; the one that
waits has left what it did in each round before, and what its peers did as well until their last.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries
from hanglab.analyzer.graph.thresholds import PEERS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.issue_order import (
    IssueOrder,
    issue_order_at,
    keep_one_order,
)


def find_added_operations(waits: OpenOperations, lookup: CallLookup) -> Iterator[OpenOperation]:
    """Collectives of one rank each, which its own order does not have where it is."""
    for operation in waits.operations.values():
        if operation.seq is None or operation.explained or operation.group.doubtful:
            continue
        if len(operation.waiters) != 1 or not operation.absent:
            continue
        if operation.unknown or operation.finished or operation.behind:
            continue
        if any(rank in waits.by_rank for rank in operation.absent):
            continue
        ((rank, pending),) = operation.waiters.items()
        if operation not in waits.first(rank):
            continue
        entries = lookup.entries(rank)
        if entries is None:
            continue
        if not _is_on_known_line(entries, pending.index):
            continue  # It may be of the program's next phase, which its peers have yet to come to.
        if issue_order_at(entries, pending.index, unlined=True) is not IssueOrder.AHEAD:
            continue
        lookup.prefetch(operation.absent[:PEERS])
        peers = [lookup.entries(other) for other in operation.absent[:PEERS]]
        if keep_one_order(entries, pending.index, peers):
            yield operation


def _is_on_known_line(entries: Entries, index: int) -> bool:
    """True if the rank made an earlier call from the line of the one with that index.

    Without lines, if it is the last one again.
    """
    stack = int(entries.stack[index])
    if stack != ABSENT:
        return bool((entries.stack[:index] == stack).any())
    columns = entries.operation, entries.group
    return index > 0 and all(int(one[index]) == int(one[index - 1]) for one in columns)
