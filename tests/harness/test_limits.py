"""Limits that are put on a process from outside, and that leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hanglab.harness.capabilities import capability
from hanglab.harness.faults.limits import LimitCpu, LimitFault, LimitMemory, LimitTasks
from hanglab.harness.system.cgroups import make

IDLE = "print(flush=True); input()"


@pytest.mark.parametrize(
    "fault",
    [
        LimitCpu(rank=0, after_s=0, cpus=0.25),
        LimitMemory(rank=0, after_s=0, mebibytes=64),
        LimitTasks(rank=0, after_s=0, tasks=7),
    ],
    ids=["cpu", "memory", "tasks"],
)
def test_a_limit_holds_for_the_process_until_it_is_cleared_up(fault: LimitFault) -> None:
    able = capability(f"cgroup_{fault.controller}")
    if not able.available:
        pytest.skip(f"needs {able.name}: {able.reason}; {able.remedy}")
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        clear_up = fault.strike(process.pid)
        line = _membership(process.pid, fault.controller)
        name = line.rpartition("/")[2]
        assert name.startswith("hanglab-")
        folder = Path(able.reason.rpartition(" at ")[2]) / name
        version = int(able.reason.split()[1])
        for file, value in fault.files(version).items():
            assert (folder / file).read_text().strip() == value
        clear_up()
        assert not folder.exists()
        assert "hanglab-" not in _membership(process.pid, fault.controller)
        assert process.poll() is None, "clearing up must not end it"
    finally:
        process.kill()
        process.communicate()


def test_a_limit_of_a_process_in_a_container_lies_below_the_containers() -> None:
    able = capability("cgroup_pids")
    if not able.available:
        pytest.skip(f"needs {able.name}: {able.reason}; {able.remedy}")
    if int(able.reason.split()[1]) != 1:
        pytest.skip(
            "in version 2 limits lie side by side: run where groups of version 1 are mounted"
        )
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    container = make("pids")
    try:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        container.add(process.pid)
        clear_up = LimitTasks(rank=0, after_s=0, tasks=7).strike(process.pid)
        own = _membership(process.pid, "pids").rpartition(":")[2]
        assert own.startswith(f"/{container.folder.name}/hanglab-")
        clear_up()
        assert _membership(process.pid, "pids").endswith(f":/{container.folder.name}")
        assert list(container.folder.glob("hanglab-*")) == []
    finally:
        process.kill()
        process.communicate()
        container.remove()


def _membership(pid: int, controller: str) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    named = [line for line in lines if controller in line.split(":")[1].split(",")]
    return (named or [line for line in lines if line.startswith("0::")])[0]


def test_a_group_that_a_killed_hanglab_left_is_removed() -> None:
    able = capability("cgroup_pids")
    if not able.available:
        pytest.skip(f"needs {able.name}: {able.reason}; {able.remedy}")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = Path(able.reason.rpartition(" at ")[2]) / f"hanglab-{gone.pid}-0badc0"
    left.mkdir()
    try:
        make("pids").remove()
        assert not left.exists()
    finally:
        if left.exists():
            left.rmdir()
