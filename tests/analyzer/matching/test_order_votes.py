"""Ranks that left an order several at once: replicas tell, and who kept to it is not accused."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from graph_rows import Row, columns, line_frames

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Finding

NODE = 4
#: Steps on a node's group before each of all ranks.
STEPS = 3


def findings(
    size: int,
    odd: Collection[int],
    *,
    rounds: int = 2,
    lost: int = 0,
    alike: bool = False,
) -> list[Finding]:
    """Local SGD: the ranks of a node call on its group, then all on one; ``odd`` leave that out.

    Of each rank ``lost`` first entries are gone.  With ``alike`` each rank is in two groups of its
    node, which nothing tells apart.
    """
    dumps = []
    for rank in range(size):
        first = rank - rank % NODE
        node = str(1 + rank // NODE)
        members = {"0": range(size), node: range(first, first + NODE)}
        if alike:
            members[f"9{node}"] = range(first, first + NODE)
        rows = []
        for number in range(1, rounds + 1):
            last = number == rounds
            for step in range(STEPS):
                seq = (number - 1) * STEPS + step + 1
                rows.append(Row("all_reduce", seq, node, True, extra=_at(10)))
            if last and rank in odd:
                rows.append(Row("all_reduce", rounds * STEPS + 1, node, False, extra=_at(10)))
            else:
                rows.append(Row("all_reduce", number, "0", not last, extra=_at(11)))
        dumps.append(
            columns(
                rank,
                rows[lost:],
                members=members,
                descriptions={**dict.fromkeys(members, "node"), "0": "default_pg"},
                first_record=lost,
            )
        )
    return synchronization_findings(build_wait_for_graph(dumps))


def _at(line: int) -> dict[str, object]:
    return {"frames": line_frames(line)}


@pytest.mark.parametrize("odd", [(4, 5, 6), (4, 5), (5, 6, 7), (0, 2, 3)])
@pytest.mark.parametrize("lost", [0, STEPS + 1])
def test_all_that_left_the_order_are_named(odd: tuple[int, ...], lost: int) -> None:
    (found,) = findings(16, odd, lost=lost)
    assert found.culprits == list(odd)
    assert "went on otherwise than" in found.summary


@pytest.mark.parametrize("rounds", [1, 2])
def test_of_nearly_as_many_none_alone_is_named(rounds: int) -> None:
    """Three of eight: the one of their node that kept to the order is not who left it."""
    (found,) = findings(8, (4, 5, 6), rounds=rounds)
    assert found.culprits != [7]
    assert found.confidence <= 0.6 or found.culprits == [4, 5, 6]


def test_groups_that_nothing_tells_apart_have_no_replicas() -> None:
    (found,) = findings(16, (4, 5, 6), alike=True, rounds=1)
    assert "went on otherwise than" not in found.summary
    assert found.confidence <= 0.6


def test_without_a_call_before_it_nobody_votes() -> None:
    """Rings that begin at the place itself may be of other rounds."""
    for found in findings(16, (4, 5, 6), lost=2 * STEPS + 1):
        assert found.confidence <= 0.6


def test_of_several_that_went_alike_none_is_named_alone() -> None:
    """Five of eight left it out: three are no majority, and no one of them is the culprit."""
    for found in findings(8, (0, 1, 2, 4, 5), rounds=4):
        assert found.confidence <= 0.6 or found.culprits == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("changed", [(0, 2), (1,)])
def test_who_alone_keeps_to_the_order_of_the_round_before_is_not_accused(
    changed: tuple[int, ...],
) -> None:
    """Two of three turned round what all did; one who does is named."""
    dumps = []
    for rank in range(3):
        rows = [Row("all_reduce", n, group, True, extra=_at(10)) for n in (1, 2) for group in "01"]
        order = "10" if rank in changed else "01"
        rows += [Row("all_reduce", 3, group, False, extra=_at(10)) for group in order]
        members = {"0": range(3), "1": range(3)}
        dumps.append(columns(rank, rows, members=members))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    if len(changed) == 1:
        assert found.culprits == [1]
    else:
        assert found.culprits != [1] or found.confidence <= 0.6
