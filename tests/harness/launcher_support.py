"""What the tests of launchers share: plans, waiting for conditions, looking for remains."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
from conditions import PATIENCE_S

from hanglab.harness.launchers.protocol import JobPlan, RankExit, RunningJob
from hanglab.recorder.system import procfs

PROGRAMS = Path(__file__).with_name("programs")


def make_plan(run_dir: Path, program: str, *arguments: object, **changes: Any) -> JobPlan:
    values: dict[str, Any] = {
        "run_dir": run_dir,
        "case_dir": run_dir / "case",
        "script": PROGRAMS / program,
        "function": None,
        "world_size": 2,
        "faulty": True,
        "seed": 0,
        "backend": "gloo",
        "deadline_s": PATIENCE_S,
        "arguments": tuple(map(str, arguments)),
    }
    return JobPlan(**{**values, **changes})


def all_exits(job: RunningJob, seconds: float = PATIENCE_S) -> dict[int, RankExit]:
    """Waits until every rank has ended."""
    exits: dict[int, RankExit] = {}
    until = time.monotonic() + seconds
    while job.alive() and time.monotonic() < until:
        exits.update({exit.rank: exit for exit in job.events(1.0)})
    assert not job.alive(), f"still alive after {seconds} s, ended: {exits}"
    return exits


def exists(pid: int) -> bool:
    """Whether a process is there and has not ended; zombies of strangers do not count."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def listening(port: int, temporary: Path) -> bool:
    """Whether a process listens there that was started with temporary files in ``temporary``.

    Others may be given the port as soon as it is free.
    """
    owners = {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    return any(
        str(temporary) in value
        for pid in owners
        if pid is not None
        for value in procfs.environment(pid).values()
    )


def segments_left(names: Iterable[str]) -> list[str]:
    return [name for name in names if os.path.lexists(f"/dev/shm/{name}")]
