"""Receives that nobody will serve, and who left the send out.

Whoever may still send could serve a receive from any source, so it waits for
nobody in particular.  Where every possible sender waits for the receiver itself, nobody
will; and the one of them that jumped ahead in its own order left its send out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.roots import reaching
from hanglab.analyzer.graph.thresholds import COMPARED_MEMBERS, SERVING_OTHERS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.issue_order import find_rank_ahead
from hanglab.analyzer.matching.summary import Pending


@dataclass(frozen=True)
class UnmatchedReceive:
    """``rank`` is in ``waiting``, a receive from any source, and ``rank_ahead`` in ``instead``."""

    rank: int
    waiting: OpenOperation
    rank_ahead: int
    pending: Pending
    instead: OpenOperation


def find_unmatched_receives(
    waits: OpenOperations, lookup: CallLookup
) -> Iterator[UnmatchedReceive]:
    for waiting in waits.operations.values():
        if not _from_anybody(waiting) or _is_sent_to(waiting, waits):
            continue
        (rank,) = waiting.waiters
        others = set(waiting.group.members) - {rank}
        if len(others) >= COMPARED_MEMBERS or not others <= reaching(waits, [rank]):
            continue
        first = {r: waits.by_rank[r][0] for r in others if r in waits.by_rank}
        places = {r: pending.index for r, (pending, _) in first.items()}
        places[rank] = waiting.waiters[rank].index
        rank_ahead = find_rank_ahead(places, lookup)
        if rank_ahead is not None and rank_ahead != rank:
            yield UnmatchedReceive(rank, waiting, rank_ahead, *first[rank_ahead])


def _from_anybody(waiting: OpenOperation) -> bool:
    if waiting.seq is not None or waiting.group.doubtful or not waiting.leaders:
        return False
    return all(p.op.endswith("recv") and p.src == ABSENT for p in waiting.waiters.values())


def _is_sent_to(waiting: OpenOperation, waits: OpenOperations) -> bool:
    """True if somebody is in a send to the receiver."""
    return any(_senders_to(rank, waiting, waits) for rank in waiting.waiters)


def is_passed_over(
    rank: int, waiting: OpenOperation, waits: OpenOperations, lookup: CallLookup
) -> bool:
    """True if a rank takes from everybody in turn, and only its receive's source does not send.

    Since its last collective it has taken from some and sent nothing; all others are in a
    send to it.  Less proves nothing: the receive may be one too many, from the wrong
    source, or too early because its rank left a collective out.
    """
    members = waiting.group.members
    entries = lookup.entries(rank)
    index = waiting.waiters[rank].index
    others = set(members) - {rank, waiting.peer}
    if len(others) < SERVING_OTHERS or entries is None or not 0 <= index < len(entries):
        return False
    name = waiting.group.group.name
    sources: set[int | None] = set()
    for row in range(index - 1, -1, -1):
        operation = entries.operations[int(entries.operation[row])]
        if operation.op == "send":
            return False
        if operation.op != "recv":
            break
        if entries.group_names[int(entries.group[row])].name == name:
            known = 0 <= operation.src < len(members)
            sources.add(members[operation.src] if known else None)
    senders = _senders_to(rank, waiting, waits)
    if not (sources and senders) or sources & {waiting.peer, None}:
        return False
    return others <= sources | senders


def _senders_to(rank: int, waiting: OpenOperation, waits: OpenOperations) -> set[int]:
    """Ranks in a send to ``rank`` in the group of ``waiting``."""
    return {
        sender
        for other in waits.operations.values()
        if other.seq is None
        and other.peer == rank
        and other.group is waiting.group
        and other.op.endswith("send")
        for sender in other.waiters
    }
