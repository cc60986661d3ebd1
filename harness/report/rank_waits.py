"""Waits of ranks for each other, and in what, by the wait-for graph of a job."""

from __future__ import annotations

from collections import defaultdict

from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Call

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
            wait(rank, following, name_of_call(cycle.calls[number]))
    for one in graph.waits:
        for on in one.on:
            wait(one.call.rank, on, name_of_call(one.call))
    for divergence in graph.divergences:
        if divergence.finished:
            continue
        for rank, call in divergence.calls.items():
            if rank not in divergence.deviating:
                for on in divergence.deviating:
                    wait(rank, on, name_of_call(call))
    for sink in graph.sinks:
        for rank in sink.victims:
            wait(rank, sink.rank, name_of_call(sink.awaited))
    for unmatched in graph.unmatched:
        if unmatched.call.peer is not None:
            wait(unmatched.call.rank, unmatched.call.peer, name_of_call(unmatched.call))
    for rank, awaited in graph.host_waits.items():
        for on in awaited:
            wait(rank, on, "on its host")
    return dict(found)


def name_of_call(call: Call) -> str:
    """``all_reduce #15 of default_pg``."""
    number = f" #{call.seq}" if call.seq is not None else ""
    other = f" with rank {call.peer}" if call.peer is not None else ""
    return f"{call.op}{number}{other} of {call.group.description or call.group.name}"
