"""Ranks that wait, as the wait-for graph has them, and differences that are why."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hanglab.analyzer.graph.wait_for_graph import Cycle, WaitForGraph
from hanglab.analyzer.matching.calls import Call, Divergence, ProcessGroup


def current_call(graph: WaitForGraph, rank: int) -> Call | None:
    """The oldest operation that the rank has not finished."""
    calls = graph.unfinished.get(rank)
    return calls[0] if calls else None


def waiting_ranks(graph: WaitForGraph, group: ProcessGroup) -> set[int]:
    """Ranks with an unfinished operation of ``group``."""
    return {wait.call.rank for wait in graph.waits if wait.call.group == group} | {
        rank
        for rank, calls in graph.unfinished.items()
        if any(call.group == group for call in calls)
    }


def all_victims(graph: WaitForGraph, culprits: Iterable[int]) -> list[int]:
    """Everybody that waits, the culprits left out."""
    return sorted({wait.call.rank for wait in graph.waits} - set(culprits))


def may_explain_hang(graph: WaitForGraph, divergence: Divergence) -> bool:
    """True if it may be why the job hangs: what all finished matters if the group hangs later."""
    return not divergence.finished or bool(waiting_ranks(graph, divergence.group))


def cycles_of(graph: WaitForGraph, ranks: Collection[int]) -> list[Cycle]:
    """Rings of waits that hold all of ``ranks``."""
    return [cycle for cycle in graph.cycles if set(ranks) <= set(cycle.ranks)]
