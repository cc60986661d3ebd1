"""Where two ranks' orders of one program part, and by which single edit."""

from __future__ import annotations

import pytest

from hanglab.analyzer.matching.program_order import Edit, find_parting

STEP = ["gather", "reduce", "norm"]


@pytest.mark.parametrize(
    ("mine", "edit"),
    [
        ([*STEP, "gather", "norm", *STEP], Edit.LEFT_OUT),
        ([*STEP, "gather", "save", "reduce", "norm", *STEP], Edit.ADDED),
        ([*STEP, "gather", "save", "norm", *STEP], Edit.CHANGED),
        ([*STEP, "reduce", "gather", "norm", *STEP], Edit.SWAPPED),
    ],
)
def test_what_follows_proves_one_edit(mine: list[str], edit: Edit) -> None:
    found = find_parting(mine, STEP * 3, (3, 3))
    assert found is not None
    assert found.proved == {edit}
    assert found.mine == found.theirs == (3 if edit is Edit.SWAPPED else 4)
    assert found.reversed.proved == {edit.opposite}


def test_orders_that_agree_as_far_as_both_go_do_not_part() -> None:
    assert find_parting(STEP, STEP * 2, (3, 6)) is None


def test_nothing_that_follows_proves_nothing() -> None:
    found = find_parting([*STEP, "reduce"], [*STEP, "gather"], (3, 3))
    assert found is not None
    assert not found.proved
    assert found.possible == set(Edit)


def test_orders_of_their_own_that_finished_do_not_matter() -> None:
    mine, theirs = ["a", "b", "sync", "a", "b", "sync"], ["b", "a", "sync", "b", "a", "sync"]
    assert find_parting(mine, theirs, (6, 6)) is None


def test_a_call_left_out_between_common_ones_is_told_whatever_the_order() -> None:
    mine = ["a", "b", "sync", "a", "sync"]
    theirs = ["b", "a", "sync", "b", "a", "sync"]
    found = find_parting(mine, theirs, (4, 6))
    assert found is not None
    assert found.proved == {Edit.LEFT_OUT}
    assert found.reversed.proved == {Edit.ADDED}


def test_a_call_that_comes_behind_others_in_the_other_order_is_none_too_many() -> None:
    for mine, theirs in ((["c", "a", "b"], ["a", "b", "c"]), (["a", "b", "c"], ["c", "a", "b"])):
        found = find_parting(mine, theirs, (0, 0))
        assert found is not None
        assert Edit.SWAPPED in found.proved
        assert not found.clear
