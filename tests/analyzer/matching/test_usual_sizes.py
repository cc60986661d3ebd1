"""Of two ranks whose sizes differ, the one whose line never has its size, where sizes are usual."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause

#: Sizes of a line's calls; each rank has a line of its own, as branches by rank do.
Sizes = Sequence[int]


def told(calls: Sequence[Sizes], lines: Sequence[int]) -> tuple[Cause | None, list[int]]:
    dumps = [
        columns(
            rank,
            [
                Row("all_reduce", seq, inputs=((size,),), line=lines[rank], done=seq < len(mine))
                for seq, size in enumerate(mine, start=1)
            ],
            members=world(2),
        )
        for rank, mine in enumerate(calls)
    ]
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    return found.cause, found.culprits


@pytest.mark.parametrize("odd", [0, 1])
def test_sizes_of_the_first_step_alone_are_no_data(odd: int) -> None:
    """DDP makes its buckets anew behind the first step."""
    past = [100, 60, *[40, 120] * 12]
    calls = [[*past, 40], [*past, 40]]
    calls[odd][-1] = 41
    assert told(calls, [10, 10]) == (Cause.SIZE_MISMATCH, [odd])


def test_a_size_that_the_data_gives_is_new_each_time() -> None:
    """Objects go by their length and themselves: rank 0 left the last one out."""
    past = [size for length in (36, 808, 625, 755, 551) for size in (1, length)]
    _, culprits = told([[*past, 1, 1], [*past, 1, 101]], [24, 34])
    assert culprits == [0, 1]
