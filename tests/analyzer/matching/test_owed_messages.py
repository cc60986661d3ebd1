"""A server of two workers that passes one by is the one that left something out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

ROUNDS = 6
SERVED = ("recv 1->0", "recv 2->0", "send 0->1", "send 0->2")


def findings(calls: Mapping[int, Sequence[str]], backend: str) -> list[Finding]:
    """Findings on ranks whose calls have all finished but the last."""
    dumps = []
    for rank, mine in calls.items():
        rows = [
            Row(op, 0, done=number < len(mine) - 1, p2p_seq=number + 1, line=line(op))
            for number, op in enumerate(mine)
        ]
        dumps.append(columns(rank, rows, members=world(3), backend=backend))
    return synchronization_findings(build_wait_for_graph(dumps))


def line(op: str) -> int:
    return 10 + op.startswith("send")


def work(worker: int, *, rounds: int) -> list[str]:
    return [f"send {worker}->0", f"recv 0->{worker}"] * rounds


@pytest.mark.parametrize("passed_by", [1, 2])
def test_a_server_that_passes_a_worker_by_is_named(passed_by: int) -> None:
    """The worker waits for its weights, the server for that worker's next gradients."""
    last = [op for op in SERVED if op != f"send 0->{passed_by}"]
    other = 3 - passed_by
    server = [*SERVED * ROUNDS, *last, "recv 1->0"]
    if passed_by == 2:
        server.append("recv 2->0")
    calls = {0: server, passed_by: work(passed_by, rounds=ROUNDS + 1)}
    # The other one has its weights; its next gradients are taken, or wait behind.
    calls[other] = [*work(other, rounds=ROUNDS + 1), f"send {other}->0"]
    if passed_by == 2:
        calls[other].append(f"recv 0->{other}")
    found = findings(calls, "nccl")
    assert [(one.cause, one.culprits) for one in found] == [(Cause.P2P_UNMATCHED, [0])]
