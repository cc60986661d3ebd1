"""A collective left out between rounds of messages is told as that, and not as messages amiss."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

STAGES = 3


class Stage:
    """The rows of a stage of a pipeline: microbatches in, microbatches on, an all_reduce of all."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.rows: list[Row] = []
        self._messages = 0
        self._rounds = 0

    def messages(self, count: int, *, done: bool = True) -> None:
        ends = []
        if self.rank > 0:
            ends += [f"recv {self.rank}<-{self.rank - 1}"] * count
        if self.rank < STAGES - 1:
            ends += [f"send {self.rank}->{self.rank + 1}"] * count
        for op in ends:
            self._messages += 1
            row = Row(op, self._rounds, "0", done, p2p_seq=self._messages, line=20)
            self.rows.append(row)

    def step(self, *, done: bool = True) -> None:
        self._rounds += 1
        self.rows.append(Row("all_reduce", self._rounds, "0", done, line=30))


def finding(
    rounds: int, microbatches: int, odd: int, *, more: int | None = None, issued: bool = True
) -> Finding:
    """``odd`` leaves the last all_reduce out, or has ``more`` messages too many before it."""
    dumps = []
    for rank in range(STAGES):
        stage = Stage(rank)
        for number in range(rounds):
            stage.messages(microbatches)
            if number < rounds - 1:
                stage.step()
        if rank == odd:
            stage.messages(microbatches if more is None else more, done=False)
            if issued:
                stage.step(done=False)
        else:
            stage.step(done=False)
        dumps.append(columns(rank, stage.rows, members={"0": range(STAGES)}, backend="nccl"))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    return found


@pytest.mark.parametrize("microbatches", [2, 4])
@pytest.mark.parametrize("odd", range(STAGES))
def test_the_collective_is_named(microbatches: int, odd: int) -> None:
    found = finding(4, microbatches, odd)
    assert (found.cause, found.culprits) == (Cause.SKIPPED_COLLECTIVE, [odd])
    assert found.collective is not None and found.collective.op == "all_reduce"
    assert f"Rank {odd} left out all_reduce" in found.summary


@pytest.mark.parametrize("odd", range(STAGES))
def test_a_message_too_many_is_one(odd: int) -> None:
    found = finding(4, 2, odd, more=1)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [odd])
    # A round of a single message looks like one too many.
    single = finding(4, 1, odd, more=1)
    assert single.cause is not Cause.SKIPPED_COLLECTIVE or odd == 1
