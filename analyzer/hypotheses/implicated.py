"""The ranks that a candidate fault would explain, and a few that stand for all who wait alike."""

from __future__ import annotations

from collections.abc import Collection
from itertools import zip_longest

from hanglab.analyzer.graph.wait_for_graph import Wait, WaitForGraph, WaitKind
from hanglab.analyzer.hypotheses.thresholds import REPRESENTATIVES, SIMULATED_RANKS

_CallKey = tuple[int, int | None, str, int | None]


def _call_key(wait: Wait) -> _CallKey:
    # Groups of one graph are told by identity: their lists of members may be long.
    call = wait.call
    return id(call.group), call.seq, call.op, call.peer


def waiting_for(graph: WaitForGraph, culprits: Collection[int]) -> set[int]:
    """Ranks that wait for ``culprits``, directly or not, or stand in an operation of theirs."""
    reached = set(culprits)
    by_target: dict[int, tuple[tuple[int, ...], set[int]]] = {}
    named, found = frozenset(culprits), set()
    theirs: dict[int, bool] = {}
    for wait in graph.waits:
        if wait.kind is WaitKind.STALLED:
            group = wait.call.group
            if id(group) not in theirs:
                theirs[id(group)] = not named.isdisjoint(group.members)
            if theirs[id(group)]:
                found.add(wait.call.rank)
        # Many wait for the same ranks, which are one tuple then.
        by_target.setdefault(id(wait.on), (wait.on, set()))[1].add(wait.call.rank)
    reached |= found
    left = list(by_target.values())
    before = -1
    while len(left) != before:
        before, rest = len(left), []
        for on, ranks in left:
            if reached.isdisjoint(on):
                rest.append((on, ranks))
            else:
                reached |= ranks
        left = rest
    return reached - set(culprits)


def representatives(
    graph: WaitForGraph, culprits: Collection[int], waiters: Collection[int]
) -> list[int]:
    """The culprits, and of each class of ranks that wait in the same operation a few."""
    wanted = set(waiters)
    direct: dict[_CallKey, list[int]] = {}
    others: dict[_CallKey, list[int]] = {}
    named = set(culprits)
    targets: dict[int, bool] = {}
    for wait in graph.waits:
        rank = wait.call.rank
        if rank not in wanted:
            continue
        near = targets.get(id(wait.on))
        if near is None:
            near = targets[id(wait.on)] = not wait.on or not named.isdisjoint(wait.on)
        ranks = (direct if near else others).setdefault(_call_key(wait), [])
        if len(ranks) < REPRESENTATIVES and rank not in ranks:
            ranks.append(rank)
    chosen = dict.fromkeys(culprits)
    most = max(SIMULATED_RANKS, len(chosen))
    for classes in (direct, others):
        # The first of every class before the second of any.
        for layer in zip_longest(*classes.values()):
            for rank in layer:
                if len(chosen) >= most:
                    return list(chosen)
                if rank is not None:
                    chosen[rank] = None
    return list(chosen)
