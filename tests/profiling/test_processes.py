"""Which of the registered processes are ranks."""

from __future__ import annotations

import os
import subprocess
import sys

from hanglab.recorder.profiling.processes import Identity, alive, identify, ranks_among


def one(pid: int, rank: int | None, *ancestors: int, own: bool = True) -> Identity:
    return Identity(pid, rank, 2, own_rank=own, ancestors=ancestors)


def test_launcher_is_no_rank() -> None:
    found = {"launcher": one(10, None), "0": one(11, 0, 10), "1": one(12, 1, 10)}
    assert ranks_among(found) == {"0", "1"}


def test_loader_worker_sees_its_parents_rank_and_is_none() -> None:
    found = {"0": one(11, 0, 10), "worker": one(21, 0, 11, 10)}
    assert ranks_among(found) == {"0"}


def test_launcher_under_a_scheduler_has_a_task_number_and_is_no_rank() -> None:
    found = {"launcher": one(10, 0, own=False), "0": one(11, 0, 10), "1": one(12, 1, 10)}
    assert ranks_among(found) == {"0", "1"}


def test_two_jobs_may_have_the_same_ranks() -> None:
    found = {"a": one(11, 0, 10), "b": one(21, 0, 20)}
    assert ranks_among(found) == {"a", "b"}


def run_with(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def test_process_is_known_by_its_environment_and_its_slurm_array() -> None:
    process = run_with(
        RANK="3", WORLD_SIZE="8", SLURM_JOB_ID="1240", SLURM_ARRAY_JOB_ID="1234",
        SLURM_ARRAY_TASK_ID="7",
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        identity = identify(process.pid)
        assert (identity.rank, identity.world_size, identity.own_rank) == (3, 8, True)
        assert {"1240", "1234", "1234_7"} <= identity.jobs
        assert os.getpid() in identity.ancestors
        assert alive(identity)
    finally:
        process.communicate()
    assert not alive(identity)


def test_recorders_registration_counts_more_than_the_environment() -> None:
    identity = identify(os.getpid(), lambda pid: (5, 16, "case-7"))
    assert (identity.rank, identity.world_size) == (5, 16)
    assert "case-7" in identity.jobs
