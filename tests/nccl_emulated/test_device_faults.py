"""Faults of the emulated device: what each leaves of two operations, on its rank and its peer."""

from __future__ import annotations

import os
import signal

import pytest
from emulated_support import Run
from installed import needs_torch

from hanglab.harness.faults.device import SlowDevice, StopDevice
from hanglab.harness.jobs.suite import Options, refusal_of, requests_of
from hanglab.harness.nccl_emulated.control import Order, give_order
from hanglab.harness.scenarios.discovery import select


@needs_torch
@pytest.mark.parametrize(
    ("order", "peer", "rank", "started"),
    [
        ("HALT", [False, False], [False, False], False),
        ("OCCUPY", [False, False], [False, False], False),
        ("HANG_IN_PART", [True, False], [False, False], True),
    ],
)
def test_a_device_that_stops(
    run_ranks: Run, order: str, peer: list[bool], rank: list[bool], started: bool
) -> None:
    ended = run_ranks("behaviours.py", "device_order", 2, ORDER=order, AMOUNT="0")
    assert [one.told["ended"] for one in ended] == [peer, rank]
    assert ended[1].told["started"] is started
    assert ended[1].code == 0, ended[1].stderr


@needs_torch
def test_a_slow_device_holds_its_peers_up(run_ranks: Run) -> None:
    """Of a millisecond that a communication is taken to need, a hundred times as much."""
    ended = run_ranks("behaviours.py", "device_order", 2, ORDER="SLOW", AMOUNT="101")
    assert [one.told["ended"] for one in ended] == [[True, True]] * 2
    assert ended[1].told["seconds"] > 0.2


@needs_torch
def test_an_error_of_the_device_is_met_by_whoever_waits_and_ends_the_process(
    run_ranks: Run,
) -> None:
    _, failed = run_ranks("behaviours.py", "device_order", 2, ORDER="FAIL", AMOUNT="0")
    error = "CUDA error: an illegal memory access was encountered"
    assert failed.told["error"] == error
    assert failed.code == -signal.SIGABRT
    assert f"Process group watchdog thread terminated with exception: {error}" in failed.stderr


def test_a_process_without_an_emulated_device_is_told_so() -> None:
    with pytest.raises(OSError, match="it has no emulated device"):
        give_order(os.getpid(), Order.HALT)


def test_faults_of_devices_are_refused_on_other_backends() -> None:
    (scenario,) = select(["device_occupied"]).scenarios
    object.__setattr__(scenario, "backends", ("gloo", "nccl-emulated"))
    asked = requests_of(scenario, Options(backend="gloo"))[0]
    assert refusal_of(scenario, asked) == (
        "OccupyDevice is done to an emulated device; use nccl-emulated"
    )


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="times= is more than 1"):
        SlowDevice(rank=0, at_step=1, times=1.0)
    with pytest.raises(ValueError, match="exactly one of"):
        StopDevice(rank=0)
