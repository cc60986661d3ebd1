"""Jobs under pytest wait for a free slot, and say for what."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from conditions import wait_for
from plugin_support import SOUND, pytest_over, write

from hanglab.harness.leases.slots import CpuSlots
from hanglab.harness.pytest_plugin import lease_waits
from hanglab.harness.pytest_plugin.lease_waits import LeaseWait


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "a worker"])
def test_a_job_that_waits_for_long_says_for_what(tmp_path: Path, workers: list[str]) -> None:
    write(tmp_path, "hanglab_mine.py", SOUND.format(name="mine"))
    folder = tmp_path / ".leases/hanglab/leases"
    folder.mkdir(parents=True)
    slots = CpuSlots(folder)
    told = (
        f"mine control 0: waiting for 1 slot for a job: held by a stranger of process {os.getpid()}"
    )
    with pytest_over(tmp_path, *workers, "-k", "control") as process:
        limit = threading.Timer(280, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            with ExitStack() as held:
                for _ in range(slots.count):
                    held.enter_context(slots.lease(threading.Event(), purpose="a stranger"))
                line = next((one for one in process.stdout if "waiting for" in one), "nothing")
            assert line.startswith(f"hanglab: {'gw0 ' if workers else ''}{told}")
            rest = process.stdout.read()
            assert process.wait() == 0, rest
            assert "1 passed" in rest
        finally:
            limit.cancel()


def test_what_is_waited_for_is_told_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_waits, "PATIENCE_S", 0.01)
    told: list[str] = []
    with LeaseWait(told.append) as wait:
        wait.tell("waiting for 1 GPU: 1 ahead in line")
        wait_for(lambda: told)
        wait.tell("waiting for 1 GPU: held by another")
        wait_for(lambda: len(told) == 2)
        wait.end()
        wait.tell("waiting for 1 port")
    assert told == wait.reasons[:2]


def test_who_waits_for_moments_only_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_waits, "PATIENCE_S", 280.0)
    told: list[str] = []
    with LeaseWait(told.append) as wait:
        wait.tell("waiting for 1 GPU: 1 ahead in line")
    assert not told
    assert wait.reasons == ["waiting for 1 GPU: 1 ahead in line"]
