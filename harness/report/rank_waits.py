"""Waits of ranks for each other, and in what, by the wait-for graph of a job."""

from __future__ import annotations

from collections import defaultdict

from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.harness.report.explanation.headlines import call_name

#: Of a rank, those that it waits for, each with the words for what it waits in.
RankWaits = dict[int, dict[int, str]]


def rank_waits(graph: WaitForGraph) -> RankWaits:
    """All waits that the graph tells of; of two for one rank the first that is told here."""
    found: RankWaits = defaultdict(dict)

    def wait(rank: int, on: int, text: str) -> None:
        if rank != on:
            found[rank].setdefault(on, text)

    for cycle in graph.cycles:
        for number, rank in enumerate(cycle.ranks):
            following = cycle.ranks[(number + 1) % len(cycle.ranks)]
            wait(rank, following, call_name(cycle.calls[number]))
    for one in graph.waits:
        for on in one.on:
            wait(one.call.rank, on, call_name(one.call))
    for divergence in graph.divergences:
        if divergence.finished:
            continue
        for rank, call in divergence.calls.items():
            if rank not in divergence.deviating:
                for on in divergence.deviating:
                    wait(rank, on, call_name(call))
    for sink in graph.sinks:
        for rank in sink.victims:
            wait(rank, sink.rank, call_name(sink.awaited))
    for unmatched in graph.unmatched:
        if unmatched.call.peer is not None:
            wait(unmatched.call.rank, unmatched.call.peer, call_name(unmatched.call))
    for rank, awaited in graph.host_waits.items():
        for on in awaited:
            wait(rank, on, "on its host")
    return dict(found)
