"""Devices that began the collectives of two communicators in opposite orders."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph


def begun(rank: int, size: int, first: str) -> RankDump:
    """A rank that issued both, of which its device began the one of group ``first``."""
    rows = [
        *(Row("all_reduce", 1, group=group) for group in "01"),
        *(
            Row(
                "all_reduce", 2, group=g, done=False, state="started" if g == first else "scheduled"
            )
            for g in "01"
        ),
    ]
    members = {"0": range(size), "1": range(size)}
    return columns(rank, rows, members=members, descriptions={"1": "grads"})


@pytest.mark.parametrize("odd", range(4))
def test_whose_device_alone_began_the_other_is_named_and_has_not_stopped(odd: int) -> None:
    graph = build_wait_for_graph([begun(r, 4, "1" if r == odd else "0") for r in range(4)])
    (cycle,) = graph.cycles
    assert cycle.deviating == (odd,) and not graph.sinks


def test_of_two_nothing_tells_whose_order_is_wrong() -> None:
    graph = build_wait_for_graph([begun(0, 2, "1"), begun(1, 2, "0")])
    (cycle,) = graph.cycles
    assert (cycle.deviating, cycle.candidates) == ((), (0, 1)) and not graph.sinks


def test_devices_in_one_order_cross_nothing() -> None:
    assert build_wait_for_graph([begun(r, 4, "0") for r in range(4)]).cycles == []


def test_those_who_are_in_one_of_the_groups_alone_tell_no_order() -> None:
    """Tensor-parallel pairs within a job: ranks 2 and 3 are through with their own pair's call."""
    states = [("started", "scheduled"), ("scheduled", "started"), *[("completed", "started")] * 2]
    dumps = []
    for rank, now in enumerate(states):
        pair, members = ("1", [0, 1]) if rank < 2 else ("2", [2, 3])
        rows = [Row("all_reduce", 1, group=group) for group in (pair, "0")]
        rows += [
            Row("all_reduce", 2, group=group, done=state == "completed", state=state)
            for group, state in zip((pair, "0"), now, strict=True)
        ]
        dumps.append(columns(rank, rows, members={"0": range(4), pair: members}))
    (cycle,) = build_wait_for_graph(dumps).cycles
    assert (cycle.deviating, cycle.candidates) == ((), (0, 1))
