"""The call of its peers' rounds that a rank makes out of its turn, by what it passes.

Code that goes over parameters, layers or buckets makes calls of many sizes from one line, in the
same order each time.  Who comes with the size of another of them is at another of them.
"""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.matching.group_history import continuation, period_of


def call_out_of_turn(facts: CaseFacts, divergence: Divergence) -> tuple[Call, Call] | None:
    """The call of a rank that differs, and the call of its peers, under another number, like it.

    They keep to rounds of several calls, and are in the one that is due.  Or they make it next, and
    are in the one that the rank made before: it has one call less of that group, or they have one
    more.  None where there is no such call.
    """
    for rank in divergence.deviating or divergence.candidates:
        mine = divergence.calls.get(rank)
        if mine is None or not mine.arguments.input_sizes:
            continue
        turn = _next_of_peers(facts, divergence, mine)
        if turn is None and divergence.deviating == (rank,):
            turn = _of_peers_rounds(facts, divergence, mine)
        if turn is not None:
            return mine, turn
    return None


def call_too_many(facts: CaseFacts, divergence: Divergence) -> Call | None:
    """The call of the one rank that differs behind which each of its calls is its peers' last one.

    Up to the one in which they are now; one call alone may be alike by chance.
    """
    if len(divergence.deviating) != 1 or len(divergence.calls) < 2:
        return None
    (rank,) = divergence.deviating
    ours = _numbered(facts, divergence.calls[rank])
    theirs = _numbered(facts, next(c for r, c in divergence.calls.items() if r != rank))
    known = sorted(ours.keys() & theirs.keys())
    first = next((n for n in known if _made(ours[n]) != _made(theirs[n])), divergence.seq)
    since = range(first, divergence.seq + 1)
    if len(since) < 2 or not all(
        n in theirs and n + 1 in ours and _made(ours[n + 1]) == _made(theirs[n]) for n in since
    ):
        return None
    return ours[first]


def _numbered(facts: CaseFacts, call: Call) -> dict[int, Call]:
    return {one.seq: one for one in _of_group(facts, call) if one.seq is not None}


def _made(call: Call) -> tuple[object, ...]:
    """The call as a dump and the boundary have it alike."""
    return *_token(call), call.arguments.input_dtypes


def _next_of_peers(facts: CaseFacts, divergence: Divergence, mine: Call) -> Call | None:
    before = _call_beside(facts, mine, -1)
    for theirs in divergence.calls.values():
        following = _call_beside(facts, theirs, 1)
        if before is None or following is None or _token(mine) == _token(theirs):
            continue
        if (_token(before), _token(mine)) == (_token(theirs), _token(following)):
            return following
    return None


def _call_beside(facts: CaseFacts, call: Call, distance: int) -> Call | None:
    """The rank's collective of the group whose number is by ``distance`` another one."""
    return None if call.seq is None else _numbered(facts, call).get(call.seq + distance)


def _of_peers_rounds(facts: CaseFacts, divergence: Divergence, mine: Call) -> Call | None:
    for peer, theirs in divergence.calls.items():
        earlier = [] if peer == mine.rank else _earlier(facts, theirs)
        done = [_token(call) for call in earlier]
        period = period_of(done) if done else None
        if period is None or continuation(done, 1) != [_token(theirs)]:
            continue
        round_ = earlier[-period:]
        return next((call for call in round_ if _token(call) == _token(mine)), None)
    return None


def _token(call: Call) -> tuple[str, tuple[tuple[int, ...], ...]]:
    return call.op, call.arguments.input_sizes


def _earlier(facts: CaseFacts, call: Call) -> list[Call]:
    """Collectives that the same rank entered in the group before, as far as its buffer goes."""
    return [one for one in _of_group(facts, call) if (one.seq or 0) < (call.seq or 0)]


def _of_group(facts: CaseFacts, call: Call) -> list[Call]:
    """Collectives of the same rank in the group, as far as its buffer goes."""
    lookup = facts.graph.lookup
    entries = lookup.entries(call.rank) if lookup is not None else None
    if entries is None:
        return []
    group = call.group
    of_group = entries.in_group(group.name) & ~entries.is_p2p
    return [
        Call(
            call.rank,
            group,
            int(entries.seq[row]),
            entries.operation_at(row).op,
            entries.arguments_at(row),
        )
        for row in map(int, np.flatnonzero(of_group))
    ]
