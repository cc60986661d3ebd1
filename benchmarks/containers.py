"""Start of a job of four containers from a built image, up to the end of its first collective.

    python benchmarks/containers.py [--starts 5]

From the call of ``start``, with the launcher connected to Docker, to the moment
at which the last rank has its first result; then the time that the end of the
job takes.  The recorder is on, as in every job of hanglab's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from hanglab.harness.launchers.docker.launcher import DockerLauncher
from hanglab.harness.launchers.protocol import JobPlan

LIMIT_S = 6.0
_NODES = 4

_RANK = """\
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print(time.time(), flush=True)
dist.destroy_process_group()
"""


def first_collective(launcher: DockerLauncher) -> tuple[float, float]:
    """Seconds up to the last rank's first result, and seconds to end the job."""
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        script = folder / "first_collective.py"
        script.write_text(_RANK)
        plan = JobPlan(
            run_dir=folder,
            case_dir=folder / "case",
            script=script,
            function=None,
            world_size=_NODES,
            faulty=False,
            seed=0,
            backend="gloo",
            deadline_s=120,
        )
        begun = time.time()
        job = launcher.start(plan)
        try:
            job.record(30.0)
            while job.alive():
                job.events(10)
        finally:
            over = time.time()
            job.end()
        ended = time.time() - over
        logs = [plan.log_dir / f"rank{rank}.out" for rank in range(_NODES)]
        return max(float(log.read_text()) for log in logs) - begun, ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    launcher = DockerLauncher()
    try:
        first_collective(launcher)  # reads the image into memory
        times = [first_collective(launcher) for _ in range(options.starts)]
    finally:
        launcher.close()
    starts, ends = zip(*times, strict=True)
    median = statistics.median(starts)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {options.starts} starts")
    print(
        f"first collective of {_NODES} containers   median {median:.2f} s   fastest "
        f"{min(starts):.2f} s   slowest {max(starts):.2f} s   limit {LIMIT_S:g} s   "
        f"{'kept' if median < LIMIT_S else 'MISSED'}"
    )
    print(f"end of the job   median {statistics.median(ends):.2f} s")


if __name__ == "__main__":
    main()
