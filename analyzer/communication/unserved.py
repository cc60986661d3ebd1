"""Receives that nobody will serve, and who left the send out.

Whoever may still send could serve a receive from any source, so it waits for
nobody in particular.  Where every possible sender waits for the receiver itself, nobody
will; and the one of them that jumped ahead in its own order left its send out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hanglab.analyzer.communication.blame import reaching
from hanglab.analyzer.communication.habits import find_breaker
from hanglab.analyzer.communication.lookup import Lookup
from hanglab.analyzer.communication.summary import Pending
from hanglab.analyzer.communication.waits import Waiting, Waits
from hanglab.analyzer.dumps.columns import ABSENT

#: In larger groups senders are not told apart: every member would have to be read.
_MEMBERS = 64


@dataclass(frozen=True)
class Unserved:
    """``rank`` is in ``waiting``, a receive from any source, and ``breaker`` in ``instead``."""

    rank: int
    waiting: Waiting
    breaker: int
    pending: Pending
    instead: Waiting


def find_unserved(waits: Waits, lookup: Lookup) -> Iterator[Unserved]:
    for waiting in waits.operations.values():
        if not _from_anybody(waiting) or _is_sent_to(waiting, waits):
            continue
        (rank,) = waiting.waiters
        others = set(waiting.group.members) - {rank}
        if len(others) >= _MEMBERS or not others <= reaching(waits, [rank]):
            continue
        first = {r: waits.by_rank[r][0] for r in others if r in waits.by_rank}
        places = {r: pending.index for r, (pending, _) in first.items()}
        places[rank] = waiting.waiters[rank].index
        breaker = find_breaker(places, lookup)
        if breaker is not None and breaker != rank:
            yield Unserved(rank, waiting, breaker, *first[breaker])


def _from_anybody(waiting: Waiting) -> bool:
    if waiting.seq is not None or waiting.group.doubtful or not waiting.leaders:
        return False
    return all(p.op.endswith("recv") and p.src == ABSENT for p in waiting.waiters.values())


def _is_sent_to(waiting: Waiting, waits: Waits) -> bool:
    """Whether somebody else than the source is in a send to the receiver."""
    return any(
        other.seq is None
        and other.peer in waiting.waiters
        and other.group is waiting.group
        and other.op.endswith("send")
        and waiting.peer not in other.waiters
        for other in waits.operations.values()
    )


def is_underway(rank: int, waiting: Waiting, waits: Waits, lookup: Lookup) -> bool:
    """Whether a receive is one of several that its rank was to make by then.

    Somebody else is in a send to it, or since its last collective it has received from
    another rank at the same line.  Otherwise it may have left a collective out and be
    ahead of its source.
    """
    if _is_sent_to(waiting, waits):
        return True
    entries = lookup.entries(rank)
    index = waiting.waiters[rank].index
    if entries is None or not 0 <= index < len(entries):
        return False
    mine = int(entries.stack[index])
    for row in range(index - 1, -1, -1):
        operation = entries.operations[int(entries.operation[row])]
        if operation.op not in ("send", "recv"):
            return False
        same = int(entries.group[row]) == int(entries.group[index])
        if operation.op == "recv" and same and int(entries.stack[row]) == mine >= 0:
            return operation.src not in (ABSENT, waiting.waiters[rank].src)
    return False
