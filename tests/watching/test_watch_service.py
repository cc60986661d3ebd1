"""The watch itself, where a rank ends between two of its looks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from conditions import wait_for
from installed import needs_torch

from hanglab.harness.watching.events import WatchEvent
from hanglab.harness.watching.finding import FoundJob
from hanglab.harness.watching.pace import PaceLimits
from hanglab.harness.watching.service import WatchService, WatchSettings
from hanglab.recorder.system import procfs

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
