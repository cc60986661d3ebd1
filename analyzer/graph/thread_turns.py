"""Two threads of each rank that use one group: each keeps its order, and their turns differ."""

from __future__ import annotations

from collections.abc import Iterable

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.thresholds import TURNS_AHEAD
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.matching.entry_queries import thread_of
from hanglab.analyzer.matching.signatures import call_site, difference


def label_thread_turns(divergences: Iterable[Divergence], lookup: CallLookup) -> None:
    """Mark divergences at which no rank left anything out: its other thread made the call later."""
    for divergence in divergences:
        if not divergence.deviating:
            continue
        peers = [rank for rank in divergence.calls if rank not in divergence.deviating]
        if peers and all(
            rank in divergence.calls and _exchanged(divergence, rank, peers[0], lookup)
            for rank in divergence.deviating
        ):
            divergence.thread_turns = True
            divergence.skipped = False


def _exchanged(divergence: Divergence, rank: int, peer: int, lookup: CallLookup) -> bool:
    """True if each of the two made the other's call next, from another thread than this one."""
    mine, theirs = divergence.calls[rank], divergence.calls[peer]
    return _follows(divergence, mine, theirs, lookup) and _follows(divergence, theirs, mine, lookup)


def _follows(divergence: Divergence, first: Call, second: Call, lookup: CallLookup) -> bool:
    """True if the rank of ``first`` also made the call of ``second``, soon, from another thread."""
    rank, name = first.rank, divergence.group.name
    entries = lookup.entries(rank)
    at = lookup.index_of(rank, name, divergence.seq)
    if entries is None or at == ABSENT:
        return False
    thread = thread_of(entries, at)
    for seq in range(divergence.seq + 1, divergence.seq + 1 + TURNS_AHEAD):
        index = lookup.index_of(rank, name, seq)
        if index == ABSENT:
            return False
        other = thread_of(entries, index)
        call = lookup.at(rank, index, divergence.group, completed=False)
        if call is not None and thread and other and other != thread and _same(call, second):
            return True
    return False


def _same(one: Call, other: Call) -> bool:
    return (
        one.op == other.op
        and difference(one, other, sites=False) is None
        and call_site(one.stack) == call_site(other.stack)
    )
