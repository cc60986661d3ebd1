"""Two threads of each rank that use one group: who took another turn left nothing out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

MAIN, SAVER = "7", "8"
Called = tuple[str, str]
"""Operation and thread."""
TRAIN: Called = ("all_reduce", MAIN)
PLAN: Called = ("all_gather", SAVER)


def dump_of(rank: int, past: int, last: Sequence[Called], size: int, backend: str) -> RankDump:
    """``past`` steps that have finished, and the ``last`` calls, which are open."""
    calls = [*[(TRAIN, True)] * past, *((one, False) for one in last)]
    rows = [
        Row(op, seq, "0", done, line=11 if thread == MAIN else 22, extra={"thread_id": thread})
        for seq, ((op, thread), done) in enumerate(calls, 1)
    ]
    return columns(rank, rows, members={"0": list(range(size))}, backend=backend)


def finding(size: int, backend: str, odd: dict[int, list[Called]], usual: list[Called]) -> Finding:
    graph = build_wait_for_graph(
        [dump_of(rank, 6, odd.get(rank, usual), size, backend) for rank in range(size)]
    )
    (found,) = synchronization_findings(graph)
    return found


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize("odd", [0, 2])
def test_a_rank_whose_threads_took_another_turn_left_nothing_out(
    size: int, backend: str, odd: int
) -> None:
    found = finding(size, backend, {odd: [TRAIN, PLAN]}, [PLAN, TRAIN])
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [odd])
    assert found.summary.startswith("Two threads of each rank use group default_pg")


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_later_turn_among_further_operations(backend: str) -> None:
    """On NCCL hosts run ahead: several steps lie between a call and the turn it should have had."""
    found = finding(4, backend, {1: [TRAIN, TRAIN, TRAIN, PLAN]}, [PLAN, TRAIN, TRAIN, TRAIN])
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])


@pytest.mark.parametrize(
    "last",
    [
        [TRAIN],  # never made
        [TRAIN, ("all_gather", MAIN)],  # by its only thread, whose order is the program's
        [TRAIN, ("broadcast", SAVER)],  # another call
    ],
    ids=["never", "one thread", "another call"],
)
def test_what_no_other_thread_made_is_no_turn(last: list[Called]) -> None:
    found = finding(4, "nccl", {2: last}, [PLAN, TRAIN])
    assert found.culprits == [2]
    assert "Two threads" not in found.summary
