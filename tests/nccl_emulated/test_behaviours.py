"""What the emulated device does, in real jobs of several ranks (docs/nccl-emulated.md lists it)."""

from __future__ import annotations

import math

import pytest
from emulated_support import Ended, Run
from installed import needs_torch

pytestmark = needs_torch


def _told(ended: list[Ended], name: str) -> list[object]:
    for one in ended:
        assert one.code == 0, one.stderr
    return [one.told.get(name) for one in ended]


@pytest.mark.on_nccl
def test_every_collective_gives_the_right_numbers(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "results", 4)
    for rank, told in enumerate(_all_told(ended)):
        assert told["reduced"] == {
            "SUM": [10.0] * 3, "AVG": [2.5] * 3, "MIN": [1.0] * 3, "MAX": [4.0] * 3,
            "PRODUCT": [24.0] * 3,
        }  # fmt: skip
        assert told["broadcast"] == [1.0] * 3
        assert told["all_gather"] == [[float(r)] * 2 for r in range(4)]
        assert told["single"] == [float(r // 2) for r in range(8)]
        assert told["scattered"] == [4.0 * (2 * rank), 4.0 * (2 * rank + 1)]
        assert told["listed"] == [4.0 * rank + 6.0]
        assert told["uneven"] == [[float(r)] * (r + 1) for r in range(4)]
        assert told["exchanged"] == [10.0 * r + rank for r in range(4)]
        assert told["ragged"] == [float(r) for r in range(4) for _ in range(rank + 1)]
        assert told["handed"] == [5.0 * rank]
        assert told["halves"] == [6.0] * 4
        assert told["large"] == [6.0, 6.0]
        assert told["coalesced"] == [[4.0] * 2, [4.0] * 5]
    assert ended[2].told["reduce"] == [10.0] * 3
    assert ended[3].told["gather"] == [0.0, 1.0, 2.0, 3.0]


def _all_told(ended: list[Ended]) -> list[dict[str, object]]:
    for one in ended:
        assert one.code == 0, one.stderr
    return [one.told for one in ended]


def test_hosts_run_ahead_of_a_device_that_waits(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "host_runs_ahead", 2)
    assert _told(ended, "open") == [True, None]
    assert _told(ended, "weight") == [[50.0] * 4] * 2


def test_whoever_reads_a_value_waits_for_it(run_ranks: Run) -> None:
    first = _all_told(run_ranks("behaviours.py", "reads_wait", 2))[0]
    assert len(first) == 10
    assert {name: value for name, value in first.items() if value != 4.0} == {}


def test_a_thread_of_the_script_waits_for_what_it_reads(run_ranks: Run) -> None:
    first = _all_told(run_ranks("behaviours.py", "thread_reads_wait", 2))[0]
    assert first == {"item": 4.0, "computed": 8.0}


def test_hosts_launch_while_the_device_looks_at_its_queues(run_ranks: Run) -> None:
    told = _all_told(run_ranks("behaviours.py", "threads_take_turns_often", 2))
    assert told == [{"errors": [], "value": 2.0**7}] * 2


def test_collectives_pass_the_mode_of_tensors_and_no_mode_of_others(run_ranks: Run) -> None:
    told = _all_told(run_ranks("behaviours.py", "calls_pass_modes", 2))
    assert told == [{"value": 8.0, "ours": 0, "others": True}] * 2


def test_integers_that_no_device_has_touched_are_read_while_it_hangs(run_ranks: Run) -> None:
    first = _all_told(run_ranks("behaviours.py", "reading_a_loaders_index", 2))[0]
    assert first == {"drawn": 7, "seed": True}


@pytest.mark.on_nccl
def test_training_gives_what_one_process_gets(run_ranks: Run) -> None:
    told = _all_told(run_ranks("behaviours.py", "trains", 4))
    for name in ("SGD", "Adam"):
        assert {values[name][0] for values in told} == {True}  # type: ignore[index]
        assert len({values[name][1] for values in told}) == 1  # type: ignore[index]


def test_a_full_launch_queue_blocks_the_host(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "queue_is_full", 2, HANGLAB_EMULATED_LAUNCH_QUEUE="16")
    assert _all_told(ended)[0] == {"blocked": True, "launched": 40}


@pytest.mark.parametrize(("slots", "done"), [("1", False), ("2", True)])
def test_crossed_orders_deadlock_for_want_of_slots(run_ranks: Run, slots: str, done: bool) -> None:
    ended = run_ranks(
        "behaviours.py", "orders_crossed", 2, HANGLAB_EMULATED_SLOTS=slots, COMES=str(int(done))
    )
    assert _told(ended, "done") == [done, done]


def test_crossed_orders_on_the_stream_deadlock_however_many_slots_there_are(
    run_ranks: Run,
) -> None:
    ended = run_ranks("behaviours.py", "orders_crossed_on_the_stream", 2)
    assert _told(ended, "host_through") == [True, True]
    assert _told(ended, "open") == [True, True]


@pytest.mark.on_nccl
@pytest.mark.parametrize("function", ["sizes_differ", "operations_differ", "both_send_first"])
def test_what_does_not_meet_hangs_and_no_host_is_told(run_ranks: Run, function: str) -> None:
    assert _told(run_ranks("behaviours.py", function, 2), "hangs") == [True, True]


@pytest.mark.on_nccl
def test_types_of_one_width_give_wrong_numbers_in_silence(run_ranks: Run) -> None:
    first, second = _told(run_ranks("behaviours.py", "types_differ", 2), "values")
    # The bits of an integer 1 are next to nothing as a float; those of 1.0 are 0x3f800000.
    assert first == [1.0, 1.0]
    assert second == [1 + 0x3F800000] * 2


@pytest.mark.on_nccl
def test_roots_that_differ_give_ranks_different_data_in_silence(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "roots_differ", 3)
    values = _told(ended, "values")
    assert values[0] == values[1] == [10.0, 10.0]
    assert values[2] != [10.0, 10.0]
    assert _told(ended, "after") == [3.0, 3.0, 3.0]


@pytest.mark.on_nccl
def test_messages_meet_in_batches_and_alone(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "ring_of_messages", 4)
    for rank, told in enumerate(_all_told(ended)):
        for step in range(3):
            assert told[f"batch{step}"] == [float((rank - 1) % 4 + step)] * 4
        assert told.get("long") == ([rank - 1.0] * 2 if rank % 2 else None)


@pytest.mark.on_nccl
@pytest.mark.parametrize("function", ["first_operation", "barrier"])
def test_the_host_waits_for_peers_to_join_and_in_a_barrier(run_ranks: Run, function: str) -> None:
    first = _all_told(run_ranks("behaviours.py", function, 2))[0]
    assert first == {"blocked": True, "free": True}


@pytest.mark.on_nccl
def test_destroying_a_group_waits_for_what_is_open(run_ranks: Run) -> None:
    assert _all_told(run_ranks("behaviours.py", "destroyed_with_open_work", 2))[0] == {
        "blocked": True
    }


def test_a_communicator_aborted_on_one_rank_frees_that_rank_alone(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "aborted", 3)
    assert _told(ended, "over") == [True, None, False]
    assert ended[0].told["values"] == [1.0, 1.0]  # it looks done, and nothing was reduced


@pytest.mark.on_nccl
def test_what_is_multiplied_before_it_is_added_up(run_ranks: Run) -> None:
    told = _all_told(run_ranks("behaviours.py", "multiplied_before", 3))
    for rank, one in enumerate(told):
        assert one["tensor"] == [2 * (0.5 + 1.5 + 2.5)] * 3
        assert one["scaled"] == [9.0, 9.0]
        assert one["part"] == 6.0 * rank
        assert one["large"] == [0.75, 0.75]
    assert told[0]["to_one"] == 9.0


def test_functional_collectives_wait_for_what_they_are_given(run_ranks: Run) -> None:
    told = _all_told(run_ranks("behaviours.py", "functional_collectives", 2))
    assert told[0].pop("open") is True
    for rank, one in enumerate(told):
        assert one == {
            "reduced": [12.0, 12.0], "both": [[13.0, 13.0], [3.0, 3.0]], "cast": [24.0, 24.0],
            "gathered": [[12.0], [12.0]] * 2, "scattered": [24.0], "exchanged": [12.0, 13.0],
            "whole": 56.0, "total": 28.0,
        }, rank  # fmt: skip


def test_tensors_of_what_is_done_are_let_go(run_ranks: Run) -> None:
    assert _told(run_ranks("behaviours.py", "memory_is_let_go", 2), "gone") == [True, True]


def test_what_cannot_be_done_is_refused_in_one_sentence(run_ranks: Run) -> None:
    told = _all_told(run_ranks("behaviours.py", "refusals", 1))[0]
    assert "A tensor on meta was given to the emulated backend" in str(told["gpu"])
    assert told["strided"] == "ValueError: Tensors must be contiguous"
    assert "Cannot use ReduceOp.BAND with NCCL." in str(told["operation"])
    assert "PreMulSum Data type must be half, float" in str(told["integers"])
    assert "does not support recvAnysource" in str(told["any_source"])


def test_a_backend_misspelt_or_a_torch_without_gloo_is_told_in_one_sentence(
    run_ranks: Run,
) -> None:
    told = _all_told(run_ranks("behaviours.py", "names", 1))[0]
    assert told["spelt"] == "nccl_emulated"
    meant = "EmulationError: There is no backend 'nccl_emulatd'; did you mean 'nccl_emulated'?"
    assert (told["misspelt"], told["in a pair"]) == (meant, meant)
    assert "nccl_emulated" not in str(told["another"])  # torch's own words
    assert told["without gloo"] == (
        "EmulationError: This torch has no gloo, which the emulated backend needs."
    )


def test_loaders_workers_are_left_alone(run_ranks: Run) -> None:
    total = [2 * math.fsum(range(0, 32, 2)), 2 * math.fsum(range(1, 32, 2))]
    assert _told(run_ranks("behaviours.py", "loader_workers", 2), "total") == [total, total]


def test_settings_that_are_no_numbers_are_refused(run_ranks: Run) -> None:
    (only,) = run_ranks("behaviours.py", "results", 1, HANGLAB_EMULATED_SLOTS="many")
    assert only.code == 1
    assert "HANGLAB_EMULATED_SLOTS is 'many', and not a whole number." in only.stderr


@pytest.mark.long
def test_64_ranks_meet_without_a_time_limit_hit(run_ranks: Run) -> None:
    ended = run_ranks("behaviours.py", "many_small", 64)
    assert _told(ended, "value") == [64.0] * 64
