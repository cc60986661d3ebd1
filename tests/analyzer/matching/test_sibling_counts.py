"""A call left out of one of several like groups so long ago that no ring has it any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

STEPS, RING = 12, 9


def findings(pairs: Sequence[Sequence[int]], counts: Mapping[int, int]) -> list[Finding]:
    """Each step a reduction of a rank's pair, which nobody waits for, and one of all; a barrier.

    By then a rank has made so many of its pair's more than it has made steps; rings hold the end.
    """
    size = sum(map(len, pairs))
    dumps = []
    for rank in range(size):
        number = next(at for at, pair in enumerate(pairs, 1) if rank in pair)
        more, group = counts.get(rank, 0), str(number)
        rows = []
        for step in range(1, STEPS + 1):
            last = all(counts.get(other, 0) == 0 for other in pairs[number - 1])
            done = last or step + more < STEPS
            rows.append(Row("all_reduce", step + more, group, done, line=10))
            rows.append(Row("all_reduce", step, "0", line=20))
        rows.append(Row("all_reduce_barrier", STEPS + more + 1, group, last, line=30))
        members = {"0": range(size), group: pairs[number - 1]}
        dumps.append(
            columns(
                rank, rows[-RING:], members=members, first_record=len(rows) - RING,
                descriptions={group: "metrics"},
            )
        )  # fmt: skip
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize("odd", [0, 2, 5])
@pytest.mark.parametrize("more", [-1, 1])
def test_numbers_beside_calls_of_all_tell_who_of_a_pair_it_is(odd: int, more: int) -> None:
    (found,) = findings([(0, 3), (1, 4), (2, 5)], {odd: more})
    assert found.culprits == [odd]
    expected = Cause.SKIPPED_COLLECTIVE if more < 0 else Cause.COLLECTIVE_MISMATCH
    assert found.cause is expected


def test_without_a_like_group_both_are_named() -> None:
    (found,) = findings([(0, 1)], {0: -1})
    assert found.culprits == [0, 1]


def test_of_groups_that_count_otherwise_by_right_none_tells() -> None:
    """The pairs beside have made other numbers of calls each, and went on."""
    (found,) = findings([(0, 3), (1, 4), (2, 5)], {0: -1, 1: 2, 4: 2, 2: 1, 5: 1})
    assert found.culprits == [0, 3]
