"""Collectives that a rank left out between two rounds of messages, which look like messages amiss.

Who leaves out what ends its round goes on to the messages of the next one, for which its peers have
no other half yet: they wait in the collective.  Its own order shows two rounds of messages where it
had one each time before; one message too many is no round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.wait_for_graph import Unmatched
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup

#: Group, and operation with its ends.
_Token = tuple[int, int]


def name_left_out_collectives(
    unmatched: Iterable[Unmatched], waits: OpenOperations, calls: CallsOfRanks
) -> Iterator[Unmatched]:
    """The messages without another half; of a rank that left a collective out, that instead."""
    told: dict[int, tuple[OpenOperation, tuple[int, ...]] | None] = {}
    for one in unmatched:
        rank = one.deviating[0] if one.call.seq is None and len(one.deviating) == 1 else None
        if rank is None:
            yield one
            continue
        first = rank not in told
        if first:
            told[rank] = _left_out(rank, waits, calls.lookup)
        found = told[rank]
        if found is None:
            yield one
        elif first:
            place, ranks = found
            waiter = min(place.waiters.keys() - {*ranks})
            call = calls.call(waiter, place.waiters[waiter], place.group.group, full=True)
            mine = next(iter(waits.first(rank)), None)
            instead = None
            if mine is not None:
                instead = calls.call(rank, mine.waiters[rank], mine.group.group, full=True)
            yield Unmatched(call, instead, ranks, by_rounds=True)


def _left_out(
    rank: int, waits: OpenOperations, lookup: CallLookup
) -> tuple[OpenOperation, tuple[int, ...]] | None:
    """The collective in which all others of its group wait, and who left it out.

    Besides the rank that are all who have not come to it, if their rounds tell the same of each.
    """
    for place in waits.operations.values():
        if place.seq is None or place.explained or rank not in place.group.members:
            continue
        missing = sorted({*place.group.members} - place.waiters.keys() | {rank})
        if len(missing) < len(place.group.members) and all(
            (entries := lookup.entries(one)) is not None
            and _has_two_rounds(entries, place, of_messages=one == rank)
            for one in missing
        ):
            return place, tuple(missing)
    return None


def _has_two_rounds(entries: Entries, place: OpenOperation, *, of_messages: bool) -> bool:
    """True if the calls since the last collective of a group are those of two rounds.

    Messages are among them, or else several collectives.
    """
    own = np.flatnonzero(entries.in_group(place.group.group.name) & ~entries.is_p2p)
    made = [int(row) for row in own if entries.seq[row] < (place.seq or 0)]
    if len(made) < 2 or int(entries.seq[made[-1]]) != (place.seq or 0) - 1:
        return False
    ends = [int(row) for row in own if entries.seq[row] == place.seq]
    until = ends[0] if ends else len(entries)
    if len(set(entries.thread[made[-2] : until].tolist())) > 1:
        return False
    usual, since = _calls(entries, made[-2], made[-1]), _calls(entries, made[-1], until)
    several = _is_more_than_one_call if of_messages else _are_several_collectives
    if not several(entries, made[-2], made[-1]):
        return False
    first, more = since[: len(usual)], since[len(usual) :]
    if not more or Counter(first) != Counter(usual):
        return False
    if ends:
        return Counter(more) == Counter(usual)
    # What it has come to is the next round's beginning, and not the last of the round again.
    return more == usual[: len(more)] and more != usual[-len(more) :]


def _calls(entries: Entries, after: int, until: int) -> Sequence[_Token]:
    rows = slice(after + 1, until)
    return list(zip(entries.group[rows].tolist(), entries.operation[rows].tolist(), strict=True))


def _are_several_collectives(entries: Entries, after: int, until: int) -> bool:
    return len(set(_calls(entries, after, until))) > 1


def _is_more_than_one_call(entries: Entries, after: int, until: int) -> bool:
    """True if a round has messages, and of several calls: one more of one call is no round."""
    rows = slice(after + 1, until)
    messages = entries.is_p2p[rows]
    times = Counter(entries.operation[rows][messages].tolist())
    sites = set(entries.stack[rows][messages].tolist())
    return bool(times) and (max(times.values()) > 1 or len(sites) > 1)
