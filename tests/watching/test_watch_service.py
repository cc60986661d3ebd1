"""The watch itself, where a rank ends between two of its looks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conditions import wait_for
from installed import needs_torch
from rank_containers import Machine, machine, needs_namespaces

from hanglab.harness.watching.events import WatchEvent
from hanglab.harness.watching.finding import FoundJob
from hanglab.harness.watching.pace import PaceLimits
from hanglab.harness.watching.service import WatchService, WatchSettings
from hanglab.recorder.system import procfs

__all__ = ["machine"]
#: As launchers start ranks.
_RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29543"}


@needs_torch
def test_a_rank_that_ends_while_the_watch_searches_is_told_of(tmp_path: Path) -> None:
    """The search misses it already, and its end has not been taken yet."""
    program = "import torch, sys; print(flush=True); sys.stdin.read(); sys.exit(3)"
    rank = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **_RANK},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    told: list[WatchEvent] = []
    limits = PaceLimits(still_s=2.0, busy_s=2.0)
    settings = WatchSettings(tmp_path, limits=limits, below=os.getpid())
    service = WatchService(settings, told.append, lambda words: None)
    search = service._finder.look

    def look() -> list[FoundJob]:
        if service.jobs and rank.stdin is not None and not rank.stdin.closed:
            rank.stdin.close()
            wait_for(lambda: procfs.state(rank.pid) == "Z", "the rank to end")
        return search()

    service._finder.look = look  # type: ignore[method-assign]
    try:
        assert rank.stdout is not None
        rank.stdout.readline()
        until = time.monotonic() + 60.0
        service.run(lambda: bool(told) or time.monotonic() > until)
    finally:
        rank.kill()
        rank.wait()
    (event,) = told
    assert (event.kind, event.signature, event.attempt) == ("failed", "rank 0 code 3", 0)


@needs_torch
@needs_namespaces
@pytest.mark.slow
def test_ranks_that_turn_out_to_be_one_job_fail_as_one(tmp_path: Path, machine: Machine) -> None:
    """Each has a container, and they connect when the watch has taken them for two jobs."""
    addresses = ("10.9.0.1", "10.9.0.2")
    network, ranks = machine.network(), []
    for number, address in enumerate(addresses):
        container = machine.container()
        network.join(container, address)
        words = {**_RANK, "RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": "trainer-0"}
        ranks.append(container.rank(number, **words))
        ranks[-1].do("import", "torch")
    told: list[WatchEvent] = []
    settings = WatchSettings(tmp_path, limits=PaceLimits(still_s=20.0), below=os.getpid())
    service = WatchService(settings, told.append, lambda words: None)
    seen: list[list[int]] = []

    def over() -> bool:
        sizes = [job["ranks"] for job in service.jobs]
        if sizes and sizes not in seen:
            seen.append(sizes)
            if sizes == [1, 1]:
                ranks[0].do("serve", addresses[0], 29543)
                ranks[1].meet(ranks[0], addresses[0], 29543)
            if sizes == [2]:
                for rank in ranks:
                    rank.end(3)
        return (seen[-1:] == [[2]] and not service._awaited) or time.monotonic() > until

    until = time.monotonic() + 200.0
    service.run(over)
    assert seen[:2] == [[1, 1], [2]]
    (event,) = told
    assert (event.kind, event.attempt) == ("failed", 0)
