"""Operations that one rank alone is in, against its own order, while its peers have nothing open.

Whoever is waited for there would be absent without a reason, all of them at once; the one that
waits has left what it did in each round before, and what its peers did as well until their last.
Or all of its peers have come with fewer of the group's operations to one of another group.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries
from hanglab.analyzer.graph.thresholds import AGREEING_COUNTS, COMPARED_MEMBERS, PEERS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.issue_order import (
    IssueOrder,
    issue_order_at,
    keep_one_order,
)
from hanglab.analyzer.matching.summary import Pending


def find_added_operations(waits: OpenOperations, lookup: CallLookup) -> Iterator[OpenOperation]:
    """Operations of one rank each, which its own order, or its peers', does not have there."""
    yield from _exchanges_too_many(waits, lookup)
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
        if _counts_otherwise(rank, pending, operation, lookup):
            yield operation
            continue
        if not _is_on_known_line(entries, pending.index):
            continue  # It may be of the program's next phase, which its peers have yet to come to.
        if issue_order_at(entries, pending.index, unlined=True) is not IssueOrder.AHEAD:
            continue
        lookup.prefetch(operation.absent[:PEERS])
        peers = [lookup.entries(other) for other in operation.absent[:PEERS]]
        if keep_one_order(entries, pending.index, peers):
            yield operation


def _exchanges_too_many(waits: OpenOperations, lookup: CallLookup) -> Iterator[OpenOperation]:
    """A message of the one rank that waits, in a batch with several that all wait for nobody.

    Each has had as many with it as the rest: they would all have stopped, or it has a batch more.
    """
    if len(waits.by_rank) != 1:
        return
    ((rank, mine),) = waits.by_rank.items()
    batch = waits.first(rank)
    peers = {one.peer for one in batch}
    lacking = all(
        one.seq is None and one.certain and one.absent == [one.peer] and not one.group.doubtful
        for one in batch
    )
    entries = lookup.entries(rank)
    known = entries is not None and all(_is_on_known_line(entries, p.index) for p, _ in mine)
    if lacking and known and len(peers) >= AGREEING_COUNTS:
        yield batch[0]


def _counts_otherwise(
    rank: int, pending: Pending, operation: OpenOperation, lookup: CallLookup
) -> bool:
    """True if a rank made more calls up to one of another group than all its peers, but not before.

    One of them may have stopped before the operation, in an order of its own, but not several.
    """
    peers = operation.absent
    if not AGREEING_COUNTS <= len(peers) <= COMPARED_MEMBERS or not pending.thread:
        return False
    lookup.prefetch(peers)
    name = operation.group.group.name
    mine, *others = (_numbers_before(lookup.entries(one), name) for one in (rank, *peers))
    alike, unlike = set[str](), set[str]()
    for mark, number in mine.items():
        theirs = [one[mark] for one in others if mark in one]
        if len(theirs) < len(peers):
            continue
        group, _ = mark
        if all(one == number for one in theirs):
            alike.add(group)
        elif group in alike - unlike and all(one < number for one in theirs):
            return True
        else:
            unlike.add(group)  # Its own order has that call first, in every round.
    return False


def _numbers_before(entries: Entries | None, name: str) -> dict[tuple[str, int], int]:
    """Number of the last call of a group before each of others, by the thread that makes these."""
    found: dict[tuple[str, int], int] = {}
    if entries is None:
        return found
    numbered = ~entries.is_p2p & (entries.seq > 0)
    of_group = np.flatnonzero(entries.in_group(name) & numbered)
    if not len(of_group):
        return found
    thread, last = entries.thread[of_group[-1]], 0
    for row in np.flatnonzero(numbered & (entries.thread == thread)).tolist():
        seq, group = int(entries.seq[row]), entries.group_at(row)
        if group == name:
            last = seq
        else:
            found[group, seq] = last
    return found


def _is_on_known_line(entries: Entries, index: int) -> bool:
    """True if the rank made an earlier call from the line of the one with that index.

    Without lines, if it is the last one again.
    """
    stack = int(entries.stack[index])
    if stack != ABSENT:
        return bool((entries.stack[:index] == stack).any())
    columns = entries.operation, entries.group
    return index > 0 and all(int(one[index]) == int(one[index - 1]) for one in columns)
