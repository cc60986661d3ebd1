"""Exchanges of uneven sizes, one of which a rank left out: counts and other groups tell who."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause

#: Elements given and taken by each rank in the exchanges of tokens, one after another.
TOKENS = [
    [(9, 7), (5, 8), (7, 6)],
    [(2, 8), (6, 3), (5, 2)],
]
COUNT = (3, 3)


def exchange(number: int, sizes: tuple[int, int], *, done: bool) -> Row:
    given, taken = sizes
    line = 10 if sizes == COUNT else 11
    return Row("all_to_all", number, "1", done, ((given,),), ((taken,),), line=line)


def step(rank: int) -> list[tuple[int, int]]:
    """Counts ahead of tokens, there and back."""
    there, back = TOKENS[0][rank], TOKENS[1][rank]
    return [COUNT, there, there[::-1], COUNT, back, back[::-1]]


@pytest.mark.parametrize("left_out", [6, 7, 8])
def test_counts_tell_who_left_an_exchange_out(left_out: int) -> None:
    """Of eight exchanges behind the first step rank 2 left one out."""
    dumps = []
    for rank in range(3):
        sizes = step(rank) * 2
        if rank == 2:
            del sizes[left_out]
        rows = [
            exchange(number, one, done=number <= left_out)
            for number, one in enumerate(sizes[: left_out + 4], start=1)
        ]
        dumps.append(columns(rank, rows, members={"1": range(3)}))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert found.culprits == [2]


def test_of_tokens_alone_nobody_is_told() -> None:
    sizes: Sequence[tuple[int, int]] = [(9, 7), (5, 8), (7, 5)]
    dumps = [
        columns(
            rank,
            [exchange(1, COUNT, done=True), exchange(2, sizes[rank], done=False)],
            members={"1": range(3)},
        )
        for rank in range(3)
    ]
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.SPLIT_MISMATCH, [0, 1, 2])


def test_calls_up_to_collectives_of_all_tell_who_left_two_exchanges_out() -> None:
    """Hosts ran ahead of the mismatch, to collectives of another group that all have in common."""
    dumps = []
    for rank in range(3):
        rows: list[Row] = []
        exchanged = 0
        for turn in range(1, 8):
            there, back = TOKENS[turn % 2][rank], TOKENS[turn % 2][rank][::-1]
            layers = 1 if (rank, turn) == (1, 4) else 2
            for sizes in (there, back) * layers:
                exchanged += 1
                extra = {"thread_id": "7", "thread_name": "python"}
                row = exchange(exchanged, sizes, done=turn < 4)
                rows.append(replace(row, extra=extra, line=16))
            rows.append(Row("all_reduce", turn, "2", turn < 4, line=20, extra=extra))
        members = dict.fromkeys(("1", "2"), range(3))
        dumps.append(columns(rank, rows, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.SKIPPED_COLLECTIVE, [1])


def test_who_ended_what_two_others_differ_in_is_not_measured_by_another_group() -> None:
    """Experts of one group skip a layer that those of the other need; 4 gives 5 too much."""
    dumps = []
    for rank in range(6):
        expert, place = ("1", rank) if rank < 3 else ("2", rank - 3)
        data = str(3 + place)
        there = TOKENS[0][place]
        calls = [(COUNT, 20), (there, 21), (there[::-1], 22), (COUNT, 20)]
        if rank < 3:
            calls += [(there, 21), (there[::-1], 22), (COUNT, 30)]
        elif rank == 3:
            calls += [(COUNT, 30)]
        elif rank == 4:
            calls[-1] = ((5, 3), 20)
        rows = [
            Row("all_to_all", number, expert, inputs=((given,),), outputs=((taken,),), line=line)
            for number, ((given, taken), line) in enumerate(calls, start=1)
        ]
        if rank < 3:
            rows.append(Row("all_reduce", 1, data, line=40))
        extra = {"thread_id": "7", "thread_name": "python"}
        rows = [replace(row, extra=extra) for row in rows]
        rows[-1] = replace(rows[-1], done=False)
        members: dict[str, Sequence[int]] = {
            "0": range(6),
            expert: range(3 * (rank // 3), 3 * (rank // 3) + 3),
        }
        members[data] = (place, place + 3)
        descriptions = {expert: "expert", data: "expert_data"}
        dumps.append(columns(rank, rows, members=members, descriptions=descriptions))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.SPLIT_MISMATCH, [4, 5])


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize("line", [0, 11])
def test_a_size_that_the_program_never_had_is_wrong(odd: int, line: int) -> None:
    """As long as it is the program's: few exchanges, or sizes that most have new, may be data's."""

    def told(before: int, taken: Sequence[int]) -> list[int]:
        dumps = []
        for rank, size in enumerate(taken):
            rows = [
                Row("all_to_all", seq, "1", True, ((16,),), ((16,),), line=line)
                for seq in range(1, before + 1)
            ]
            rows.append(Row("all_to_all", before + 1, "1", False, ((16,),), ((size,),), line=line))
            dumps.append(columns(rank, rows, members={"1": range(4)}))
        (found,) = synchronization_findings(build_wait_for_graph(dumps))
        return found.culprits

    alone = [15 if rank == odd else 16 for rank in range(4)]
    assert told(20, alone) == [odd]
    assert told(3, alone) == [0, 1, 2, 3]
    assert told(20, [16, 13, 19, 18]) == [0, 1, 2, 3]
