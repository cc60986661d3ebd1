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


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("paired", [2, 8], ids=["one_pair", "all_in_pairs"])
@pytest.mark.parametrize("odd", [0, 1])
def test_who_leaves_out_the_call_of_its_pair_is_named(odd: int, paired: int, lines: bool) -> None:
    """Of a call that most have no part in, only the partner can be without one too many.

    All others are in the call that the odd one went on to, as they are in each of their rounds.
    """
    dumps = []
    for rank in range(8):
        pair = str(1 + rank // 2)
        round_ = [pair, ALL] if rank < paired else [ALL]
        order = round_ * 4 if rank != odd else [*round_ * 3, ALL]
        numbers = Counter[str]()
        rows = []
        for place, group in enumerate(order):
            numbers[group] += 1
            done = place < 3 * len(round_) or (group != ALL and rank // 2 != odd // 2)
            line = (17 if group == pair else 29) if lines else 0
            rows.append(Row("all_reduce", numbers[group], group, done, line=line, extra=THREAD))
        members = {ALL: range(8)}
        if rank < paired:
            members[pair] = [rank - rank % 2, rank - rank % 2 + 1]
        dumps.append(columns(rank, rows, members=members))
    found = synchronization_findings(build_wait_for_graph(dumps))
    assert [one.culprits for one in found] == [[odd]]
