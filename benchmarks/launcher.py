"""Start of four gloo ranks up to the end of their first collective: local launcher and torchrun.

    python benchmarks/launcher.py [--starts 20] [--cold-starts 3]

Both are measured in one run, alternating, from the call of ``start`` to the
moment at which the last rank has its first result; only the ratio carries over
to another machine.  The recorder is on, as in every job of hanglab's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from hanglab.harness.launchers.local import LocalLauncher
from hanglab.harness.launchers.protocol import JobPlan, Launcher
from hanglab.harness.launchers.torchrun import TorchrunLauncher

_RANK = """\
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as file:
    file.write(str(time.time()))
dist.destroy_process_group()
"""


def first_collective(launcher: Launcher, world_size: int = 4) -> float:
    """Seconds from the call of ``start`` to the last rank's first result."""
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        script = folder / "first_collective.py"
        script.write_text(_RANK)
        plan = JobPlan(
            run_dir=folder,
            case_dir=folder / "case",
            script=script,
            function=None,
            world_size=world_size,
            faulty=False,
            seed=0,
            backend="gloo",
            deadline_s=120,
            arguments=(name,),
        )
        begun = time.time()
        job = launcher.start(plan)
        try:
            while job.alive():
                job.events(10)
        finally:
            job.end()
        ends = [float((folder / str(rank)).read_text()) for rank in range(world_size)]
        return max(ends) - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--cold-starts", type=int, default=3)
    options = parser.parse_args()

    local, torchrun = LocalLauncher(), TorchrunLauncher()
    try:
        first_collective(local)  # waits for the warm process
        warm: list[float] = []
        cold: list[float] = []
        for number in range(options.cold_starts):
            share = range(number * options.starts, (number + 1) * options.starts)
            warm += [first_collective(local) for k in share if k % options.cold_starts == 0]
            cold.append(first_collective(torchrun))
    finally:
        local.close()
        torchrun.close()
    for name, times in (("local", warm), ("torchrun", cold)):
        print(
            f"{name:9} {len(times):3} starts   median {statistics.median(times):7.3f} s"
            f"   fastest {min(times):7.3f} s   slowest {max(times):7.3f} s"
        )
    print(f"ratio of the medians: {statistics.median(cold) / statistics.median(warm):.0f}")


if __name__ == "__main__":
    main()
