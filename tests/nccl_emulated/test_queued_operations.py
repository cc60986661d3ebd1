"""Operations that the device takes several at once must look as if it took them one by one."""

from __future__ import annotations

import pytest
from emulated_support import Run
from installed import needs_torch

pytestmark = needs_torch


@pytest.mark.on_nccl
@pytest.mark.parametrize("size", [2, 3])
def test_operations_of_all_kinds_in_one_queue_give_the_right_numbers(
    run_ranks: Run, size: int
) -> None:
    for one in run_ranks("queued_operations.py", "of_all_kinds", size):
        assert one.code == 0, one.stderr
        assert one.told == {"wrong": []}


@pytest.mark.on_nccl
def test_operations_on_one_tensor_come_one_after_the_other(run_ranks: Run) -> None:
    ended = run_ranks("queued_operations.py", "same_memory", 2)
    assert [one.told.get("value") for one in ended] == [2.0**20] * 2


def test_a_mismatch_inside_a_run_hangs_there(run_ranks: Run) -> None:
    for one in run_ranks("queued_operations.py", "mismatch_inside", 2):
        assert one.code == 0, one.stderr
        assert one.told == {"more": False, "completed": 20, "started": 21, "order": True}


@pytest.mark.parametrize(("slots", "done"), [("1", False), ("2", True)])
def test_slots_go_by_the_order_of_launches(run_ranks: Run, slots: str, done: bool) -> None:
    ended = run_ranks(
        "queued_operations.py",
        "slot_in_launch_order",
        2,
        HANGLAB_EMULATED_SLOTS=slots,
        COMES=str(int(done)),
    )
    assert [one.told.get("done") for one in ended] == [done, done]


def test_peers_of_a_device_that_stops_get_no_further_than_it_got(run_ranks: Run) -> None:
    ended = run_ranks("queued_operations.py", "halted_behind_published", 2)
    assert [one.told.get("completed") for one in ended] == [10, 10]


def test_the_first_of_a_run_has_waited_and_one_that_fails_is_met_in_its_turn(
    run_ranks: Run,
) -> None:
    first, second = run_ranks("queued_operations.py", "waits_and_failures", 2)
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert first.told["waited_ms"] > 200
    assert first.told["next_began"]
    assert (first.told["error"], second.told["error"]) == ("ZeroDivisionError", "NoneType")
