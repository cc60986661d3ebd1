"""Operations that a rank has too many: alone, or where its peers wait for what it owes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns, line_frames

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Line of each group's call; "1" is of ranks 0 to 2, "2" of the same.
LINES = {"0": 11, "1": 7, "2": 9}
STEP = ("1", "1", "2")


def findings(
    ranks: Sequence[Sequence[str]],
    held: Sequence[int],
    *,
    one_line: bool = False,
    opened: Sequence[int] = (),
    only: int | None = None,
) -> list[Finding]:
    """Findings of ranks with their groups, call by call; the last of ``held`` is unfinished.

    Or the last few, by rank, if ``opened`` says how many; or the one at the place ``only``, of
    threads that are told.
    """
    dumps = []
    for rank, groups in enumerate(ranks):
        numbers = Counter[str]()
        rows = []
        for place, group in enumerate(groups):
            numbers[group] += 1
            left = opened[rank] if opened else 1
            done = rank not in held or place < len(groups) - left
            extra: dict[str, object] = {"frames": line_frames(7 if one_line else LINES[group])}
            if only is not None:
                done = rank not in held or place != only
                extra |= {"thread_id": "7", "thread_name": "python"}
            rows.append(Row("all_reduce", numbers[group], group, done, extra=extra))
        members = {group: list(range(len(ranks))) for group in ("0", "1", "2")}
        dumps.append(columns(rank, rows, members=members))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("wrong", [0, 1])
def test_alone_in_what_its_order_does_not_have_a_rank_is_wrong(wrong: int, size: int) -> None:
    past = STEP * 3
    found = findings([(*past, "2") if r == wrong else past for r in range(size)], [wrong])
    assert [(one.cause, one.culprits) for one in found] == [(Cause.COLLECTIVE_MISMATCH, [wrong])]
    assert found[0].location is not None
    assert found[0].location.line == LINES["2"]


def test_alone_in_what_comes_next_a_rank_is_not_wrong() -> None:
    past = STEP * 3
    assert findings([(*past, "1"), past, past, past], [0]) == []
    (found,) = findings([(*past, "1"), past], [0])
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [1])


def test_alone_without_an_order_so_far_a_rank_is_not_wrong() -> None:
    assert findings([(*STEP, "2"), STEP, STEP], [0]) == []


def test_alone_where_each_rank_has_an_order_of_its_own_a_rank_is_not_wrong() -> None:
    steps = [("1", "2", "0"), ("2", "1", "0")]
    mine, peers = [*steps[0], *steps[0], "2"], [*steps[1], *steps[1]]
    assert findings([mine, peers, peers], [0]) == []


@pytest.mark.parametrize("changed", [0, 1])
def test_alone_where_an_order_was_changed_before_nobody_has_a_call_too_many(changed: int) -> None:
    usual, other = ("1", "2", "0"), ("2", "1", "0")
    pasts = [[*usual, *(other if rank == changed else usual), *usual * 2] for rank in (0, 1)]
    (found,) = findings([[*pasts[0], "2"], pasts[1]], [0])
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [0, 1])


@pytest.mark.parametrize(("behind", "culprits"), [("1", [0, 1]), ("120", [0]), ("12", [0])])
def test_a_call_is_one_too_many_only_where_the_round_comes_whole_behind_it(
    behind: str, culprits: list[int]
) -> None:
    past = ("1", "2", "0") * 2
    (found,) = findings([(*past, "2", *behind), past], [0], opened=(1 + len(behind), 0))
    assert found.culprits == culprits


@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize("size", [3, 4])
def test_alone_in_what_all_its_peers_had_passed_without_it_a_rank_is_wrong(
    wrong: int, size: int
) -> None:
    """Rounds of the ranks' own orders: how many calls each had made up to "0" tells it."""
    orders = [("1", "2", "0"), ("2", "1", "0")]
    ranks = [orders[rank % 2] * 2 for rank in range(size)]
    ranks[wrong] = (*orders[wrong % 2], *orders[wrong % 2][:2], "2", "0")
    (found,) = findings(ranks, [wrong], only=5)
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [wrong])


@pytest.mark.parametrize("waiting", ["1", "2"])
def test_an_order_of_its_own_that_counts_more_in_every_round_accuses_nobody(waiting: str) -> None:
    """All its peers may have come to a stand at once, as where they share a file system."""
    mine, peers = [*("1", "2", "0") * 2, waiting], [*("2", "1", "0") * 2]
    assert findings([mine, peers, peers], [0], only=6) == []


def test_of_two_the_one_that_counts_more_is_not_told_by_the_other_alone() -> None:
    mine, theirs = ("1", "2", "0", "1", "2", "2", "0"), ("2", "1", "0") * 2
    (found,) = findings([mine, theirs], [0], only=5)
    assert found.culprits == [0, 1]


def test_a_call_once_more_is_no_order_of_groups() -> None:
    past = ("1", "2") * 3
    found = findings([(*past, "2"), (*past, "1"), (*past, "1")], [0, 1, 2])
    assert [(one.cause, one.culprits) for one in found] == [(Cause.COLLECTIVE_MISMATCH, [0])]


def test_in_a_loop_over_groups_it_may_be_one() -> None:
    past = ("1", "2") * 3
    found = findings([(*past, "2"), (*past, "1"), (*past, "1")], [0, 1, 2], one_line=True)
    assert [(one.cause, one.culprits) for one in found] == [(Cause.GROUP_ORDER, [0])]


@pytest.mark.parametrize("size", [3, 5])
def test_one_that_waits_alone_in_a_call_made_twice_is_named_by_its_own_rounds_alone(
    size: int,
) -> None:
    """Several may have stopped; of a pair, rounds of many steps tell who broke them."""
    done = ("1", "2", "0")
    found = findings([(*done, "0"), *[done] * (size - 1)], [0])
    assert found == []  # Several are away, or one has a call too many.
    past = ("1", "2") * 3
    (pair,) = findings([(*past, "2"), past], [0])
    assert (pair.cause, pair.culprits) == (Cause.COLLECTIVE_MISMATCH, [0])
