"""The call of its peers' rounds that a rank makes out of its turn, by what it passes.

Code that goes over parameters, layers or buckets makes calls of many sizes from one line, in the
same order each time.  Who comes with the size of another of them is at another of them.
"""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.matching.group_history import continuation, period_of


def call_out_of_turn(facts: CaseFacts, divergence: Divergence) -> Call | None:
    """The peers' earlier call that the one rank of a difference makes; None if there is none.

    They keep to rounds of several calls, and are in the one that is due.
    """
    (rank,) = divergence.deviating if len(divergence.deviating) == 1 else (None,)
    mine = divergence.calls.get(rank) if rank is not None else None
    if mine is None or not mine.arguments.input_sizes:
        return None
    for peer, theirs in divergence.calls.items():
        earlier = [] if peer == rank else _earlier(facts, theirs)
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
    lookup = facts.graph.lookup
    entries = lookup.entries(call.rank) if lookup is not None else None
    if entries is None or call.seq is None:
        return []
    group = call.group
    of_group = entries.in_group(group.name) & ~entries.is_p2p & (entries.seq < call.seq)
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
