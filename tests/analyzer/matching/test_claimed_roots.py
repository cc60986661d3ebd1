"""Several members of a gather, or of a scatter, that take themselves for its root."""

from __future__ import annotations

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.matching.calls import Difference


@pytest.mark.parametrize("op", ["gather", "scatter"])
@pytest.mark.parametrize(
    ("ranks", "roots"), [(2, (0, 1)), (3, (0, 2)), (5, (1, 3)), (4, (0, 1, 3)), (4, (2,)), (3, ())]
)
def test_all_who_hold_a_place_for_each_part_are_candidates(
    op: str, ranks: int, roots: tuple[int, ...]
) -> None:
    one, every, nothing = ((8,),), ((8,),) * ranks, ((0,),)  # torch's, of a tensor that is none
    dumps = []
    for rank in range(ranks):
        parts = every if rank in roots else nothing
        given, taken = (one, parts) if op == "gather" else (parts, one)
        last = Row(op, 2, done=False, inputs=given, outputs=taken)
        dumps.append(columns(rank, [Row("all_reduce", 1), last], members=world(ranks)))
    found = build_wait_for_graph(dumps).divergences
    claims = [(one.difference, one.deviating, one.candidates) for one in found]
    assert claims == ([(Difference.ROOT, (), roots)] if len(roots) > 1 else [])
