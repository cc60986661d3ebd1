"""The emulated backend: ranks through their first collective, small operations, many ranks.

    python benchmarks/nccl_emulated.py [--starts 10] [--operations 3000] [--many 64]

Figures stand beside their limits.  Those of operations are of one rank, from its first launch to
its last result, on as many cores as the machine has; the processor time of one, of host and device,
says what a machine that is busy with other work would do if it were not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from hanglab.harness.launchers.local import LocalLauncher
from hanglab.harness.launchers.protocol import JobPlan, Launcher

_FIRST = """\
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
tensor = torch.ones(1, device="cuda")
dist.all_reduce(tensor)
tensor.item()
with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as file:
    file.write(str(time.time()))
dist.destroy_process_group()
"""
_MANY = """\
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
tensors = [torch.ones(8) for _ in range(64)]
dist.all_reduce(tensors[0])
tensors[0].sum().item()
dist.barrier()
begun = time.time()
for number in range(900):  # as many as the launch queue takes
    work = dist.all_reduce(tensors[number % 64], async_op=True)
launched = 900 / (time.time() - begun)
work.wait()
tensors[0].sum().item()
dist.barrier()
begun, busy = time.time(), time.process_time()
count = int(sys.argv[2])
for number in range(count):
    work = dist.all_reduce(tensors[number % 64], async_op=True)
work.wait()
tensors[0].sum().item()
with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as file:
    used = (time.process_time() - busy) / count * 1e6
    file.write(f"{count / (time.time() - begun)} {launched} {used}")
dist.destroy_process_group()
"""
_LIMITED = """\
import sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
begun = time.time()
dist.init_process_group("nccl", timeout=timedelta(seconds=20))
for _ in range(10):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    tensor.sum().item()
with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as file:
    file.write(str(time.time() - begun))
dist.destroy_process_group()
"""


def run(
    launcher: Launcher, script: str, world_size: int, *arguments: str
) -> tuple[float, list[str]]:
    """Moment of the start, and what each rank wrote; raises OSError where one wrote nothing."""
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        program = folder / "program.py"
        program.write_text(script)
        plan = JobPlan(
            run_dir=folder,
            case_dir=folder / "case",
            script=program,
            function=None,
            world_size=world_size,
            faulty=False,
            seed=0,
            backend="nccl-emulated",
            deadline_s=120,
            arguments=(name, *arguments),
        )
        begun = time.time()
        job = launcher.start(plan)
        try:
            while job.alive():
                job.events(10)
        finally:
            job.end()
        return begun, [(folder / str(rank)).read_text() for rank in range(world_size)]


def show(what: str, figure: float, limit: str, unit: str) -> None:
    print(f"{what:58} {figure:9.2f} {unit:5} (limit: {limit})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--operations", type=int, default=3000)
    parser.add_argument("--many", type=int, default=64)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores")
    launcher = LocalLauncher()
    try:
        run(launcher, _FIRST, 4)  # waits for the warm process
        times = []
        for _ in range(options.starts):
            begun, ends = run(launcher, _FIRST, 4)
            times.append(max(map(float, ends)) - begun)
        show("4 ranks through their first collective, median", statistics.median(times),
             "below 0.3", "s")  # fmt: skip
        for size in (2, 4):
            _, figures = run(launcher, _MANY, size, str(options.operations))
            done, launched, used = zip(*(map(float, one.split()) for one in figures), strict=True)
            show(f"small operations done by each of {size} ranks", min(done), "10,000", "1/s")
            # Whatever else runs on the machine: it has the cores for so many.
            share = 100 * (os.cpu_count() or 1) / size
            show(f"processor time of each of them, {size} ranks", max(used), f"{share:.0f}", "us")
            if size == 2:
                show("small operations launched by each of 2 ranks", min(launched), "10,000", "1/s")
        _, seconds = run(launcher, _LIMITED, options.many)
        show(f"{options.many} ranks through 10 collectives, time limit 20 s each",
             max(map(float, seconds)), "no time limit hit", "s")  # fmt: skip
    finally:
        launcher.close()


if __name__ == "__main__":
    main()
