"""Operations of two names that went on as one: what came since tells whether they explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.verdict import Cause

RANKS = 4


def graph_of(
    ops: Mapping[int, Sequence[str]], *, usual: Sequence[str], open_: Mapping[int, int]
) -> WaitForGraph:
    """``ops`` by rank, ``usual`` of all others; ``open_``: the number in which a rank waits."""
    dumps = []
    for rank in range(RANKS):
        names = ops.get(rank, usual)
        rows = [
            Row(name, seq, done=seq != open_.get(rank))
            for seq, name in enumerate(names, start=1)
            if seq <= open_.get(rank, len(names))
        ]
        dumps.append(columns(rank, rows, members=world(RANKS)))
    return build_wait_for_graph(dumps)


@pytest.mark.parametrize(
    ("name", "usual"), [("_all_gather_base", "all_gather"), ("broadcast", "all_reduce")]
)
def test_a_name_that_all_got_away_with_long_ago_explains_no_rank_that_is_away(
    name: str, usual: str
) -> None:
    common = ["all_reduce"] * 9
    graph = graph_of(
        {3: [name, *common], 1: [usual, *common[:8]]},
        usual=[usual, *common],
        open_={0: 10, 2: 10, 3: 10},
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])
    told = [(one.difference, one.deviating) for one in graph.silent_mismatches]
    assert told == ([] if "gather" in name else [(Difference.OPERATION, (3,))])


@pytest.mark.parametrize("sizes", [(4,), (4, 8, 16)])
def test_names_that_differ_in_every_round_are_one_operation(sizes: Sequence[int]) -> None:
    dumps = []
    for rank in range(RANKS):
        rows = []
        for seq in range(1, 11 if rank == 1 else 12):
            size = sizes[seq % len(sizes)]
            name = "all_reduce" if seq % 2 else "_all_gather_base" if rank == 2 else "all_gather"
            sized = {"inputs": ((size,),), "outputs": ((size * RANKS,),)} if seq % 2 == 0 else {}
            rows.append(Row(name, seq, done=seq < 11, **sized))
        dumps.append(columns(rank, rows, members=world(RANKS)))
    graph = build_wait_for_graph(dumps)
    assert not (graph.divergences or graph.silent_mismatches)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])


def test_who_is_out_of_step_since_is_named() -> None:
    usual = ["all_reduce", "all_reduce", "broadcast"] * 3
    added = ["all_reduce", "barrier", "all_reduce", "broadcast", "all_reduce", "all_reduce"]
    graph = graph_of({2: [*added, "broadcast"]}, usual=usual[:7], open_=dict.fromkeys(range(4), 7))
    (finding,) = synchronization_findings(graph)
    assert finding.culprits == [2]


@pytest.mark.parametrize("waiting", [{2}, {0, 1, 3}])
def test_who_alone_waits_or_is_away_may_be_out_of_step(waiting: set[int]) -> None:
    odd, usual = ["broadcast", *["all_reduce"] * 8], ["all_reduce"] * 9
    ops = {rank: (odd if rank == 2 else usual)[: 9 if rank in waiting else 8] for rank in range(4)}
    graph = graph_of(ops, usual=(), open_=dict.fromkeys(waiting, 9))
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [2])
