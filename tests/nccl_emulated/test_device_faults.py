"""Faults of the emulated device: what each leaves of two operations, on its rank and its peer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from emulated_support import Run
from installed import needs_torch

from hanglab.analyzer.facts.error_texts import XID
from hanglab.harness.faults.device import SlowDevice, StopDevice
from hanglab.harness.faults.link import FlapLink, NarrowLink
from hanglab.harness.jobs.plan import Options, refusal_of, requests_of
from hanglab.harness.nccl_emulated.control import Order, give_order
from hanglab.harness.scenarios.discovery import select
from hanglab.recorder.system.kernel_log import EMULATED_LOG, KernelLog

#: What comes to its end of both operations of both ranks.
ALL_END = json.dumps([[True, True]] * 2)
NONE_ENDS = json.dumps([[False, False]] * 2)


@pytest.mark.slow
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
    ended = run_ranks(
        "behaviours.py", "device_order", 2, ORDER=order, AMOUNT="0", ENDS=json.dumps([peer, rank])
    )
    assert [one.told["ended"] for one in ended] == [peer, rank]
    assert ended[1].told["started"] is started
    assert ended[1].code == 0, ended[1].stderr


@needs_torch
def test_a_slow_device_holds_its_peers_up(run_ranks: Run) -> None:
    """Of a millisecond that a communication is taken to need, a hundred times as much."""
    ended = run_ranks(
        "behaviours.py", "device_order", 2, ORDER="SLOW", AMOUNT="101", TEXT="1", ENDS=ALL_END
    )
    assert [one.told["ended"] for one in ended] == json.loads(ALL_END)
    assert ended[1].told["seconds"] > 0.2


@needs_torch
def test_a_device_may_be_slow_now_and_then(run_ranks: Run) -> None:
    ends = [[True, True], [True, False]]
    # The second one of rank 1 takes 100 s.
    given = {"ORDER": "SLOW", "AMOUNT": "100000", "TEXT": "2", "ENDS": json.dumps(ends)}
    ended = run_ranks("behaviours.py", "device_order", 2, **given)
    assert [one.told["ended"] for one in ended] == ends


@needs_torch
def test_an_error_of_the_device_is_met_by_whoever_waits_and_ends_the_process(
    run_ranks: Run,
) -> None:
    _, failed = run_ranks(
        "behaviours.py", "device_order", 2, ORDER="FAIL", AMOUNT="0", ENDS=NONE_ENDS
    )
    error = "CUDA error: an illegal memory access was encountered"
    assert failed.told["error"] == error
    assert failed.code == -signal.SIGABRT
    assert f"Process group watchdog thread terminated with exception: {error}" in failed.stderr


@needs_torch
def test_a_narrow_link_holds_up_what_passes_it_and_nothing_else(run_ranks: Run) -> None:
    """4 KiB at 16 KiB a second, from rank 0 to rank 1; other messages go other ways."""
    ended = run_ranks("device_faults.py", "narrow_link", 3)
    after = [one.told["after"] for one in ended]
    assert after[1] >= 0.25
    assert ended[1].told["before"] < after[1]
    assert max(after[0], after[2]) < after[1]


@needs_torch
def test_what_passes_a_link_that_is_down_goes_on_when_it_is_up(run_ranks: Run) -> None:
    for one in run_ranks("device_faults.py", "flapping_link", 3):
        assert one.told == {"held": True, "came": True, "values": [3.0, 3.0]}, one.stderr


@needs_torch
def test_of_a_link_that_stays_down_all_are_inside_and_nobody_is_through(run_ranks: Run) -> None:
    ended = run_ranks("device_faults.py", "link_down", 4)
    assert [one.told for one in ended] == [{"open": True, "started": True}] * 4


@needs_torch
def test_after_an_abort_from_outside_the_rank_is_refused_and_its_peer_waits(
    run_ranks: Run,
) -> None:
    waits, refused = run_ranks("device_faults.py", "abort_ordered", 2)
    assert waits.told == {"open": True}
    assert refused.told == {"error": "NCCL communicator was aborted on rank 1."}


@needs_torch
def test_memory_that_others_have_taken_is_torchs_own_error(run_ranks: Run) -> None:
    (only,) = run_ranks("device_faults.py", "memory_filled", 1)
    assert only.told["on the host"] == "" and only.told["free"] == 0
    for name in ("made", "moved"):
        assert only.told[name].startswith(
            "CUDA out of memory. Tried to allocate 1024 bytes. GPU 0 has a total capacity of "
            "16.00 GiB of which 0 bytes is free"
        )


@needs_torch
def test_a_drivers_message_is_read_as_the_kernels(run_ranks: Run, tmp_path: Path) -> None:
    _, stopped = run_ranks("device_faults.py", "xid_logged", 2, HANGLAB_RUNTIME=str(tmp_path))
    log = KernelLog(tmp_path / EMULATED_LOG)
    (line,) = [line for line in log.new() if "Xid" in line]
    match = XID.pattern.search(line)
    assert match is not None
    assert (match["number"], match["pid"]) == ("79", str(stopped.told["pid"]))
    assert not any("Xid" in line for line in log.new())  # each is told once


NARROW = """
import torch.distributed as dist
from hanglab.harness import Cause, Expect, NarrowLink, scenario

@scenario(world_size=3, backends=("nccl-emulated",),
          expect=Expect(Cause.SLOW_LINK, culprits={1, 2}),
          faults=[NarrowLink(rank=1, peer=2, at_step=5, kibibytes=64)])
def narrow(job):
    for _ in job.steps(30):
        tensor = job.batch(64)
        dist.all_reduce(tensor)  # FAULT
        tensor.sum().item()
"""


@pytest.mark.long
@needs_torch
def test_a_declared_fault_of_a_link_strikes_both_ends_and_accuses_nobody(tmp_path: Path) -> None:
    """8 KiB at 64 a second, 25 times over; no evidence tells whose fault that is."""
    (tmp_path / "narrow.py").write_text(NARROW)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "hanglab.harness.cli", "run", "narrow.py", "--json"),
            *("--backend", "nccl-emulated"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    fault, control = json.loads(ran.stdout)["results"]
    assert control["outcome"] == "pass"
    assert fault["outcome"] == "not reproduced"
    assert (fault["verdict"]["status"], fault["verdict"]["culprits"]) == ("healthy", [])
    assert fault["seconds"] > control["seconds"] + 2.0
    (struck,) = json.loads((Path(fault["artifacts"]) / "truth.json").read_text())["faults"]
    assert struck["kind"] == "narrowlink" and struck["proof"]["proved"]


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
    with pytest.raises(ValueError, match="every= is 1 or more"):
        SlowDevice(rank=0, at_step=1, every=0)
    with pytest.raises(ValueError, match="exactly one of"):
        StopDevice(rank=0)
    with pytest.raises(ValueError, match="xid= is one of 13, 31"):
        StopDevice(rank=0, at_step=1, xid=7)
    with pytest.raises(ValueError, match="a link is between two ranks"):
        FlapLink(rank=1, peer=1, at_step=1, down_s=1.0)
    with pytest.raises(ValueError, match="kibibytes= is more than 0"):
        NarrowLink(rank=1, peer=2, at_step=1, kibibytes=0)


def test_a_link_needs_both_of_its_ranks() -> None:
    (scenario,) = select(["device_occupied"]).scenarios
    link = FlapLink(rank=1, peer=5, at_step=1, down_s=1.0)
    assert replace(scenario, faults=(link,)).refuses_world(4) == "needs at least 6 ranks, not 4"
