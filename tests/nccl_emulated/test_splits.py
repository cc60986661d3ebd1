"""``ncclCommSplit``, eager connection and non-blocking initialisation, in real jobs."""

from __future__ import annotations

from typing import Any

import pytest
from emulated_support import Ended, Run
from installed import needs_torch

pytestmark = needs_torch


def _told(ended: list[Ended]) -> list[dict[str, Any]]:
    for one in ended:
        assert one.code == 0, one.stderr
    return [one.told for one in ended]


@pytest.mark.slow
@pytest.mark.parametrize(("bound", "blocked"), [("1", True), ("0", False)])
def test_members_of_a_split_wait_for_ranks_outside_of_it(
    run_ranks: Run, bound: str, blocked: bool
) -> None:
    first, second, third = _told(run_ranks("splits.py", "group_of_two", 3, BOUND=bound))
    assert first == second == {"blocked": blocked, "value": [2.0, 2.0]}
    assert third == {"outside": True}


def test_who_is_in_no_new_group_waits_for_its_members(run_ranks: Run) -> None:
    *_, third = _told(run_ranks("splits.py", "outsider_blocks", 3))
    assert third == {"blocked": True, "free": True}


def test_a_group_is_split_in_halves_and_in_a_part(run_ranks: Run) -> None:
    told = _told(run_ranks("splits.py", "halves", 4))
    assert [one["value"] for one in told] == [1.0, 1.0, 5.0, 5.0]
    assert [one["members"] for one in told] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [one["three"] for one in told] == [True, True, True, False]
    assert [one["other"] for one in told] == [3.0, 3.0, 3.0, 1.0]
    assert [one["desc"] for one in told] == ["three"] * 3 + [None]


def test_a_call_of_new_group_left_out_hangs_all_hosts(run_ranks: Run) -> None:
    """Splits are matched by the order of the calls: rank 2's is the others' first, and its group
    has no second member there.
    """
    told = _told(run_ranks("splits.py", "one_call_less", 3))
    assert [one["through"] for one in told] == [False, False, True]
    assert [one["made"] for one in told] == [1, 1, 1]


@pytest.mark.parametrize(("nonblocking", "before"), [("0", []), ("1", ["initialised"])])
def test_without_blocking_the_first_operation_waits_and_not_the_initialisation(
    run_ranks: Run, nonblocking: str, before: list[str]
) -> None:
    first, second = _told(
        run_ranks("splits.py", "late_member", 2, TORCH_NCCL_USE_COMM_NONBLOCKING=nonblocking)
    )
    assert first == {"before": before, "after": ["initialised", "launched"]}
    assert second == {"value": [2.0, 2.0]}


@pytest.mark.long
def test_a_communicator_that_is_never_ready_is_told_in_torchs_words(run_ranks: Run) -> None:
    first, _ = _told(
        run_ranks(
            "splits.py", "never_ready", 2,
            TORCH_NCCL_USE_COMM_NONBLOCKING="1", TORCH_NCCL_NONBLOCKING_TIMEOUT="1",
        )
    )  # fmt: skip
    assert first["error"] == "NCCL timeout when waiting for nonblocking call to become successful."
