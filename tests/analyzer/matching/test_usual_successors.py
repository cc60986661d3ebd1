"""Ranks that alone went on from a call as nobody does, and those that do so by right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Group, operation, line, and the other end of a message or the size of a collective's tensor.
Called = tuple[str, str, int, int]
SEND, RECV = "send", "recv"
#: Groups of the first half of six ranks, and of the second.
WORLD, NEAR, FAR = "0", "1", "2"
MEMBERS = {WORLD: [0, 1, 2, 3, 4, 5], NEAR: [0, 1, 2], FAR: [3, 4, 5]}


def dump_of(rank: int, calls: Sequence[Called]) -> RankDump:
    """The buffer of a rank that waits in the last of its calls."""
    numbers: Counter[tuple[str, bool]] = Counter()
    rows = []
    for place, (group, op, line, other) in enumerate(calls):
        message = op in (SEND, RECV)
        numbers[group, message] += 1
        ends = (rank, other) if op == SEND else (other, rank)
        name = f"{op} {ends[0]}->{ends[1]}" if op == SEND else f"{op} {ends[1]}<-{ends[0]}"
        rows.append(
            Row(
                name if message else op,
                0 if message else numbers[group, False],
                group=group,
                done=place < len(calls) - 1,
                inputs=((4,),) if message else ((other,),),
                line=line,
                p2p_seq=numbers[group, True] if message else 0,
                extra={"thread_id": "7", "thread_name": "python"},
            )
        )
    mine = {group: members for group, members in MEMBERS.items() if rank in members}
    return columns(rank, rows, members=mine)


def findings(ranks: Sequence[Sequence[Called]]) -> list[Finding]:
    dumps = [dump_of(rank, calls) for rank, calls in enumerate(ranks)]
    return synchronization_findings(build_wait_for_graph(dumps))


def own(rank: int) -> str:
    return NEAR if rank < 3 else FAR


def training(rank: int) -> list[Called]:
    return [(own(rank), "all_gather", 10, 8), (own(rank), "reduce_scatter", 12, 16)]


@pytest.mark.parametrize("wrong", [0, 2, 4])
def test_a_collective_left_out_before_shards_move(wrong: int) -> None:
    """To whom each rank sends is its own; that nobody does so from that line is not."""
    other = (wrong + 1) % 3 + 3 * (wrong > 2)
    ranks = []
    for rank in range(6):
        held = own(rank) == own(wrong)
        # Its own group waits for it; the other one has come to its messages.
        ranks.append(
            training(rank)
            + ([] if held else [(WORLD, RECV, 22, rank - 3 if rank > 2 else rank + 3)])
        )
    ranks[wrong] = [training(wrong)[0], (WORLD, RECV, 22, other)]
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.SKIPPED_COLLECTIVE, [wrong])


def test_a_rank_that_alone_logs_has_left_nothing_out() -> None:
    """Others cannot come to its line: it is of no group of theirs."""
    ranks = [[(WORLD, "all_reduce", 10, 8), (WORLD, "barrier", 30, 1)] for _ in range(6)]
    ranks[2] = [(WORLD, "all_reduce", 10, 8), (WORLD, SEND, 20, 3)]
    assert all(one.cause is not Cause.SKIPPED_COLLECTIVE for one in findings(ranks))


def test_a_loop_that_data_end_may_take_another_turn() -> None:
    """Those who are at its end have taken as many turns as they had, and so has the rank."""
    turn: list[Called] = [(WORLD, RECV, 20, 0), (WORLD, SEND, 22, 0)]
    ranks = [turn * 2 + [(WORLD, "all_reduce", 30, 8)] for _ in range(6)]
    ranks[0] = [(WORLD, SEND, 10, 1), (WORLD, RECV, 12, 1)] * 2 + [(WORLD, SEND, 10, 4)]
    ranks[4] = turn * 2 + turn[:1]
    assert all(one.culprits != [4] for one in findings(ranks))
