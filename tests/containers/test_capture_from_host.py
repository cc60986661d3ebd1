"""`hanglab capture` on the host, of jobs each rank of which has a container of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from conditions import PATIENCE_S, wait_for
from containers_support import make_plan, pause, running
from installed import needs_torch

from hanglab.harness.launchers.docker.launcher import DockerLauncher
from hanglab.harness.recording.running_jobs import ranks_of
from hanglab.harness.watching.finding import JobFinder
from hanglab.recorder.attach.tree import FoundRank

pytestmark = [pytest.mark.docker, pytest.mark.slow, needs_torch]

_TRAINS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(1 << 10))
    print("going", flush=True)
"""


def processes(ranks: list[FoundRank]) -> dict[int, int]:
    return {rank.rank: rank.pid for rank in ranks}


def test_the_job_of_a_paused_container_is_captured_whole_and_its_neighbour_is_not(
    tmp_path: Path, launcher: DockerLauncher
) -> None:
    """Both say the same: ranks 0 and 1 of 2, and the port of their stores."""
    with ExitStack() as stack:
        plans = [make_plan(tmp_path / name, _TRAINS) for name in ("one", "other")]
        jobs = [stack.enter_context(running(launcher, plan)) for plan in plans]
        for plan in plans:
            log = plan.log_dir / "rank1.out"
            wait_for(lambda log=log: "going" in log.read_text(), "the job to train")  # type: ignore[misc]
        known = [dict(job.pids) for job in jobs]
        # What hangs is found by a rank that only waits.
        pause(jobs[0].hosts[1].container)
        assert [processes(ranks_of(pids[0])) for pids in known] == known
        watched = [processes([*job.ranks.values()]) for job in JobFinder().look()]
        assert all(pids in watched for pids in known)
        words = [sys.executable, "-m", "hanglab.harness.cli", "capture", str(known[0][0])]
        done = subprocess.run(
            [*words, "--json", "--watch", "2", "--out", str(tmp_path / "case")],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        verdict = json.loads(done.stdout)
        assert (verdict["cause"], verdict["culprits"]) == ("process_frozen", [1]), done.stderr
        jobs[0].hosts[1].container.unpause()
