"""A send and a receive that miss each other by their groups, and which of the two is wrong."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause


@pytest.mark.parametrize(("others", "culprits"), [(0, [0, 2]), (2, [2])])
def test_the_first_message_to_a_peer_is_usual_in_the_group_of_all_others(
    others: int, culprits: list[int]
) -> None:
    """Rank 2 takes on group 2 what rank 0 sends on group 1, as it does to rank 1."""
    exchanges = {0: (1, 2), 1: (0, 2), 2: (1, others)}
    lasts = {0: ("send 0->2", "1"), 2: ("recv 2<-0", "2")}
    dumps = []
    for rank, (peer, turns) in exchanges.items():
        words = [f"send {rank}->{peer}", f"recv {rank}<-{peer}"]
        words = (words if rank < peer else words[::-1]) * turns
        rows = [Row(word, 0, "1", p2p_seq=at) for at, word in enumerate(words, start=1)]
        if rank in lasts:
            name, group = lasts[rank]
            rows.append(Row(name, 0, group, done=False, p2p_seq=len(rows) + 1))
        members = dict.fromkeys(("1", "2"), range(3))
        dumps.append(columns(rank, rows, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, culprits)
