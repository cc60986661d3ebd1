"""Replicas that have other numbers of microbatches, and a rank that left its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph

WORLD = "0"
MEMBERS = {WORLD: range(6), "1": range(3), "2": range(3, 6)}
#: Group, operation and line.
Called = tuple[str, str, int]
#: Microbatches of each replica in each step, and of the step in which the ranks wait.
MICROBATCHES = {"1": [2, 1, 3, 2], "2": [1, 2, 2, 1]}


def culprits(ranks: Sequence[Sequence[Called]]) -> list[int]:
    dumps = []
    for rank, calls in enumerate(ranks):
        numbers: Counter[str] = Counter()
        rows = []
        for at, (group, op, line) in enumerate(calls, start=1):
            numbers[group] += 1
            extra = {"thread_id": "7", "thread_name": "python"}
            row = Row(op, numbers[group], group, at < len(calls), line=line, extra=extra)
            rows.append(row)
        mine = {group: members for group, members in MEMBERS.items() if rank in members}
        dumps.append(columns(rank, rows, members=mine))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    return found.culprits


def steps(group: str, microbatches: Sequence[int]) -> list[Called]:
    found: list[Called] = []
    for count in microbatches:
        found += [(group, "all_gather", 10), (group, "reduce_scatter", 12)] * count
        found.append((WORLD, "all_reduce", 14))
    return found


def replicas() -> list[list[Called]]:
    return [steps(g, MICROBATCHES[g]) for g in ("1", "1", "1", "2", "2", "2")]


@pytest.mark.parametrize("odd", [0, 4])
def test_two_of_a_replica_are_not_outvoted_by_another_replica(odd: int) -> None:
    """The odd one comes to the all_reduce once more, as the other replica does by right."""
    ranks = replicas()
    group = "1" if odd < 3 else "2"
    for rank in range(6):
        if (rank < 3) == (odd < 3):
            ranks[rank].append((group, "all_gather", 10))
        else:
            ranks[rank] += steps("2" if group == "1" else "1", [1])
    ranks[odd][-1] = (WORLD, "all_reduce", 14)
    assert culprits(ranks) == [odd]


@pytest.mark.parametrize("odd", [0, 4])
def test_one_microbatch_more_than_the_two_others_of_a_replica(odd: int) -> None:
    ranks = replicas()
    for rank in range(6):
        ranks[rank] += steps("1" if rank < 3 else "2", [1])
    ranks[odd][-1] = ("1" if odd < 3 else "2", "all_gather", 10)
    assert culprits(ranks) == [odd]
