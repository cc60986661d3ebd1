"""Closed groups and rings over holds, against the pairs of ranks that they stand for."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hanglab.analyzer.graph.closed_waits import (
    Hold,
    Holds,
    closed_groups,
    shortest_cycle,
    waits_without,
    within,
)

Pairs = dict[int, set[int]]


def some_holds(seed: int) -> Holds:
    """Up to eight ranks in up to five operations; who leads in one may be among those it is for."""
    choose = random.Random(seed)
    ranks = range(choose.randint(2, 8))
    there = [
        Hold(frozenset(choose.sample(ranks, choose.randint(1, len(ranks)))))
        for _ in range(choose.randint(1, 5))
    ]
    return {rank: choose.sample(there, choose.randint(0, min(2, len(there)))) for rank in ranks}


def pairs_of(holds: Holds) -> Pairs:
    return {
        rank: set().union(*(hold.ranks for hold in mine)) - {rank} for rank, mine in holds.items()
    }


def reached(pairs: Pairs, start: int) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        new = pairs[todo.pop()] - found
        found |= new
        todo += new
    return found


def closed(pairs: Pairs) -> set[frozenset[int]]:
    reach = {rank: reached(pairs, rank) for rank in pairs}
    return {
        frozenset(reach[rank])
        for rank in pairs
        if len(reach[rank]) > 1 and all(reach[other] == reach[rank] for other in reach[rank])
    }


def still_waiting(pairs: Pairs, gone: int) -> bool:
    went = {gone}
    while more := {rank for rank in pairs if rank not in went and pairs[rank] <= went}:
        went |= more
    return len(went) < len(pairs)


def shortest(pairs: Pairs) -> int:
    lengths = []
    for start in pairs:
        level, length = {start}, 0
        while start not in level or not length:
            level = set().union(*(pairs[rank] for rank in level))
            length += 1
        lengths.append(length)
    return min(lengths)


@pytest.mark.parametrize("first", range(0, 3000, 100))
def test_holds_stand_for_pairs(first: int) -> None:
    groups = 0
    for seed in range(first, first + 100):
        whole = some_holds(seed)
        holds = within(whole, whole)
        pairs = pairs_of(holds)
        found = closed_groups(holds)
        assert {frozenset(group) for group in found} == closed(pairs), seed
        assert pairs == pairs_of(whole)
        for group in found:
            groups += 1
            part = within(holds, group)
            of_group = {rank: pairs[rank] & group for rank in group}
            assert pairs_of(part) == of_group
            cycle = shortest_cycle(part)
            assert len(cycle) == shortest(of_group) == len(set(cycle)), seed
            assert all(after in pairs[rank] for rank, after in pairwise([*cycle, cycle[0]])), seed
            for rank in group:
                assert waits_without(part, rank) == still_waiting(of_group, rank), (seed, rank)
    assert groups > 5


def test_a_job_of_halves_that_wait_for_each_other_takes_no_pairs() -> None:
    half = 50_000
    lower, upper = range(half), range(half, 2 * half)
    in_lower, in_upper = Hold(frozenset(upper)), Hold(frozenset(lower))
    whole = {rank: [in_lower] for rank in lower} | {rank: [in_upper] for rank in upper}
    holds = within(whole, whole)
    (group,) = closed_groups(holds)
    assert len(group) == 2 * half
    assert sorted(shortest_cycle(holds)) == [0, half]
    assert waits_without(holds, 0)
