"""A call that all others of its group have made, and that a rank's own rounds do not have there."""

from __future__ import annotations

from collections import Counter

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph

#: Operation and group of the calls of a round: of all, and of a rank's pair.  No line is known.
ALL, FIRST, SECOND = "0", "1", "2"
THREAD = {"thread_name": "python", "thread_id": "1"}
SIZES = {ALL: 1, FIRST: 64, SECOND: 128}


@pytest.mark.parametrize("odd", [0, 3, 4])
def test_who_makes_what_all_made_is_not_the_one_that_left_the_order(odd: int) -> None:
    """Behind some rounds all report something, and begin the next: the same call twice at once.

    One goes on within its rounds instead, as its partner alone can tell.
    """
    size, rounds = 6, [ALL, FIRST, SECOND] * 4
    dumps = []
    for rank in range(size):
        pair = str(1 + rank // 2)
        numbers = Counter[str]()
        rows = []
        for place, call in enumerate([*rounds, ALL, FIRST if rank == odd else ALL]):
            group = ALL if call == ALL else pair
            numbers[group] += 1
            done = place <= len(rounds)
            inputs = ((SIZES[call],),)
            rows.append(Row("all_reduce", numbers[group], group, done, inputs=inputs, extra=THREAD))
        members = {ALL: range(size), pair: [rank - rank % 2, rank - rank % 2 + 1]}
        dumps.append(columns(rank, rows, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert found.culprits == [odd]
