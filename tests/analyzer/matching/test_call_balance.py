"""Calls that rings have lost, told by the numbers of what came behind them."""

from __future__ import annotations

from collections import Counter

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.verdict import Cause

#: Operation, group and line of the calls of a round, by a letter.
CALLS = {"a": ("all_reduce", "1", 40), "b": ("broadcast", "2", 41)}
ROUNDS, KEPT = 6, 8


def graph(orders: dict[int, str]) -> WaitForGraph:
    """Each rank has issued its order; its ring holds the last calls, of which none has ended."""
    dumps = []
    for rank, order in orders.items():
        numbers = Counter[str]()
        rows = []
        for letter in order:
            op, group, line = CALLS[letter]
            numbers[group] += 1
            extra = {"thread_id": "7", "thread_name": "python"}
            rows.append(Row(op, numbers[group], group, False, line=line, extra=extra))
        members = dict.fromkeys(("1", "2"), range(len(orders)))
        status = {1: (numbers["1"], 1), 2: (numbers["2"], 1)}
        first = len(rows) - KEPT
        dumps.append(
            columns(rank, rows[-KEPT:], members=members, status=status, first_record=first)
        )
    return build_wait_for_graph(dumps)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(
    ("order", "cause"),
    [
        ("aabaaab" + "aab" * (ROUNDS - 2), Cause.COLLECTIVE_MISMATCH),
        ("aabab" + "aab" * (ROUNDS - 2), Cause.SKIPPED_COLLECTIVE),
    ],
    ids=["one too many", "one left out"],
)
def test_one_rank_counts_otherwise(size: int, order: str, cause: Cause) -> None:
    odd = size - 1
    orders = {rank: order if rank == odd else "aab" * ROUNDS for rank in range(size)}
    (found,) = synchronization_findings(graph(orders))
    assert (found.cause, found.culprits) == (cause, [odd])
    assert "its buffer has lost where" in found.summary


def test_orders_of_the_ranks_own_are_no_counts() -> None:
    """Up to one group's calls one rank has one more of the other's, up to the other's none."""
    made = graph({rank: ("ba" if rank == 2 else "ab") * ROUNDS for rank in range(3)})
    assert not made.departures
