"""Calls of peers that no dump holds: what a rank waits in may be its own mistake, or theirs."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.causes.synchronization.missing_rank import missing_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.strengths import CANDIDATES, SEEN
from hanglab.analyzer.verdict import Cause

WORDS = "with other arguments: no dump holds what the peers called"


def broadcast_dumps(size: int, *, active_only: bool) -> list[RankDump]:
    """Rank 1 is in the second broadcast, the others have ended it and wait for the next."""
    sent = [Row("broadcast", seq, done=True, line=10) for seq in (1, 2)]
    dumps = []
    for rank in range(size):
        mine = [Row("broadcast", 2, done=False, line=10)] if rank == 1 else []
        mine = mine or [Row("all_reduce", 3, done=False, line=11)]
        before = sent[: 1 if rank == 1 else 2]
        rows = mine if active_only else [*before, *mine]
        first = len(before) if active_only else 0
        ended = 1 if rank == 1 else 2
        status = {0: (3 - (rank == 1), ended)}
        dumps.append(columns(rank, rows, members=world(size), status=status, first_record=first))
    return dumps


@pytest.mark.parametrize("active_only", [False, True])
def test_who_alone_has_not_ended_it_may_have_called_otherwise(active_only: bool) -> None:
    (found,) = missing_findings(build_wait_for_graph(broadcast_dumps(4, active_only=active_only)))
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [1])
    assert (WORDS in found.summary) is active_only
    assert found.confidence == (CANDIDATES if active_only else SEEN)


@pytest.mark.parametrize("active_only", [False, True])
def test_of_a_pair_either_may_have_called_otherwise(active_only: bool) -> None:
    found = synchronization_findings(
        build_wait_for_graph(broadcast_dumps(2, active_only=active_only))
    )
    assert [one.culprits for one in found] == ([] if active_only else [[1]])


@pytest.mark.parametrize("missing", [(), (0,)])
def test_who_left_no_dump_may_be_in_the_exchange_that_a_peer_has_not_ended(
    missing: tuple[int, ...],
) -> None:
    dumps = []
    for rank in {*range(4)} - {*missing}:
        exchange = Row("all_to_all", 1, done=rank != 1, line=10)
        last = Row("all_reduce", 2, done=False, line=11)
        dumps.append(columns(rank, [exchange, last], members=world(4)))
    found = missing_findings(build_wait_for_graph(dumps, expected=range(4)))
    assert [one.culprits for one in found] == ([] if missing else [[1]])
