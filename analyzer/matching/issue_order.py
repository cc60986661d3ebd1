"""Each rank's own order of operations so far, and whether it broke it.

Where two ranks wait for each other, neither group nor number tells who is
wrong.  Their own past may: the one that goes on as in every step before is
right, the one that jumped ahead in its own order is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import cycle, islice
from typing import NamedTuple

from hanglab.analyzer.flight_recorder.columns import Entries, Operation
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.entry_queries import thread_of
from hanglab.analyzer.matching.group_history import period_of, repeats_since, repeats_variously
from hanglab.analyzer.matching.signatures import call_site, comparable_sizes
from hanglab.analyzer.matching.summary import Pending
from hanglab.analyzer.matching.thresholds import PAST_ENTRIES
from hanglab.recorder.case.operations import op_of

#: Name of the group, operation, sizes and call site.
_Called = tuple[str, Operation, object, object]
#: Operation, sizes and call site.
_Unnamed = tuple[str, object, object]


class IssueOrder(Enum):
    IN_ORDER = "in_order"
    #: It did what it usually does later.
    AHEAD = "ahead"
    UNKNOWN = "unknown"


def find_rank_ahead(places: Mapping[int, int], lookup: CallLookup) -> int | None:
    """The one rank that jumped ahead in its own order while all others kept theirs.

    ``places`` maps ranks to the index of the entry in which they wait.
    """
    orders = {rank: issue_order_at(lookup.entries(rank), index) for rank, index in places.items()}
    ahead = [rank for rank, order in orders.items() if order is IssueOrder.AHEAD]
    in_order = [rank for rank, order in orders.items() if order is IssueOrder.IN_ORDER]
    return ahead[0] if len(ahead) == 1 and len(in_order) == len(orders) - 1 else None


def issue_order_at(entries: Entries | None, index: int, *, unlined: bool = False) -> IssueOrder:
    """Order of the entry at ``index``, against what the rank's own pattern has next.

    Not known where the order of its thread says other than that of all threads together:
    threads may take turns for long and still be free to change them.  ``unlined``: also where the
    dump does not tell from which lines its rank called; a pattern of operations alone proves less.
    """
    if entries is None or not 0 < index < len(entries):
        return IssueOrder.UNKNOWN
    now, patterns = _patterns_at(entries, index, unlined=unlined)
    in_order = {now == pattern.calls[0] for pattern in patterns}
    if len(in_order) != 1:
        return IssueOrder.UNKNOWN
    return IssueOrder.IN_ORDER if in_order.pop() else IssueOrder.AHEAD


def jumps_over(entries: Entries | None, index: int, group: str, other: Pending) -> bool:
    """True if a rank jumped, at the entry at ``index``, over the other half of ``other``.

    ``other`` is a peer's send or receive in the group of that name.  Not known where the rank's
    past in the group has more in it than repetitions: a phase of a schedule ends after some.
    """
    if entries is None or issue_order_at(entries, index) is not IssueOrder.AHEAD:
        return False
    now, (pattern, *_) = _patterns_at(entries, index)
    if any(call is not None and call[0] == group for call in pattern.before):
        return False
    return any(
        call is not None
        and call[0] == group
        and op_of(call[1].op).half == op_of(other.op).other_half
        and (call[1].src, call[1].dst) == (other.src, other.dst)
        for call in pattern.calls[: pattern.calls.index(now)]
    )


class _CallPattern(NamedTuple):
    """Calls that are repeated up to an entry, and what the rank did before it began to."""

    calls: list[_Called | None]
    before: list[_Called | None]


def keep_one_order(entries: Entries, index: int, peers: Sequence[Entries | None]) -> bool:
    """True if all peers ended with the pattern that a rank repeated until its entry at ``index``.

    On one of their threads.  Groups apart, whose names may be each rank's own.  Ranks whose orders
    differ may change them, and so may one that has changed its own before, up to the call that ends
    the rounds of all: where the entry is that one once more, nothing of another round is in front
    of it.  What the rank issued since is its pattern again: else it did this in another order.
    """
    _, patterns = _patterns_at(entries, index, unlined=True)
    if not patterns:
        return False
    size = len(patterns[0].calls)
    own = _rows_of_threads(entries, index)[thread_of(entries, index)]
    issued = [_unnamed(entries, row) for row in own]
    mine = issued[-size:]
    again = _unnamed(entries, index) == mine[-1]

    def is_kept(theirs: list[_Unnamed | None]) -> bool:
        if again and theirs[-1:] == mine[-1:]:
            return Counter(theirs[-size:]) == Counter(mine)
        return theirs[-size:] == mine and not _has_reordered(theirs, size)

    return (again or _is_one_more(entries, index, issued, size)) and all(
        peer is not None
        and any(
            is_kept([_unnamed(peer, row) for row in rows])
            for rows in _rows_of_threads(peer, len(peer)).values()
        )
        for peer in peers
    )


def _is_one_more(
    entries: Entries, index: int, issued: Sequence[_Unnamed | None], size: int
) -> bool:
    """True if a call is one more than the rounds have, and none of them in another order.

    A rank whose rounds came in one order so far, and that issued them behind the call as before.
    """
    thread, now = thread_of(entries, index), _unnamed(entries, index)
    rows = (row for row in range(index + 1, len(entries)) if thread_of(entries, row) == thread)
    since = [_unnamed(entries, row) for row in rows]
    due = issued[-size:]
    known = due.index(now) if now in due else size
    if since and (len(since) <= known or since != [*islice(cycle(due), len(since))]):
        return False
    return not _has_reordered(issued, size)


def _has_reordered(calls: Sequence[_Unnamed | None], size: int) -> bool:
    """True if a round of that many calls, before the last one, had these in another order."""
    latest = calls[-size:]
    rounds = (calls[end - size : end] for end in range(len(calls) - size, size - 1, -size))
    return any(one != latest and Counter(one) == Counter(latest) for one in rounds)


def _rows_of_threads(entries: Entries, end: int) -> dict[str, list[int]]:
    """Entries before ``end`` by their threads, the latest."""
    found: dict[str, list[int]] = {}
    for row in range(max(0, end - PAST_ENTRIES), end):
        found.setdefault(thread_of(entries, row), []).append(row)
    return found


def _unnamed(entries: Entries, row: int) -> _Unnamed | None:
    call = _call(entries, row, unlined=True)
    return None if call is None else (call[1].op, *call[2:])


def _patterns_at(
    entries: Entries, index: int, *, unlined: bool = False
) -> tuple[_Called | None, list[_CallPattern]]:
    """The entry's call, and the patterns repeated until then that contain it.

    By all threads together, and by the entry's own one where there are several.
    """
    now = _call(entries, index, unlined=unlined)
    # Without call sites a pattern of operations proves too little by itself.
    if now is None:
        return None, []
    everything = list(range(max(0, index - PAST_ENTRIES), index))
    mine = thread_of(entries, index)
    own = [row for row in everything if thread_of(entries, row) == mine]
    patterns = []
    for rows in [everything] if len(own) == len(everything) else [everything, own]:
        past = [_call(entries, row, unlined=unlined) for row in rows]
        period = period_of(past)
        if period is not None and repeats_variously(past):
            return now, []
        if period is not None and now in past[-period:]:
            patterns.append(_CallPattern(past[-period:], past[: repeats_since(past, period)]))
        elif rows is own and period is None:
            return now, []  # What threads repeat together may be the turns that they took.
    return now, patterns


def _call(entries: Entries, row: int, *, unlined: bool = False) -> _Called | None:
    """The call of an entry, with its place in the program; None without one unless ``unlined``."""
    site = call_site(entries.stack_at(row))
    if site is None and not unlined:
        return None
    # A tag may count steps.
    operation = replace(entries.operation_at(row), tag=0)
    sizes = comparable_sizes(operation.op, entries.arguments_at(row))
    return entries.group_at(row), operation, sizes, site
