"""The pytest plugin: its cost to others' suites, collection, and what two workers gain.

    python benchmarks/plugin.py [--part overhead|collection|workers] [--rounds 15]
                                [--workers 0 2] [--worker-rounds 3]

Overhead is the difference of medians of whole runs of pytest over an unrelated
suite, with the plugin and with ``-p no:hanglab``, in turns.  Collection is that
of 100 scenario files, by pytest's own clock and as a whole.  Workers are 40
items, each a real job of two gloo ranks, with ``-n 0`` and with ``-n 2``, in turns.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_HEADER = """\
import torch
import torch.distributed as dist
from hanglab.harness import Cause, Expect, scenario
"""
_SCENARIO = """
@scenario(
    world_size=2, hang_after=1.0, expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={{1}})
)
def {name}(job):
    model = torch.nn.Linear(64, 8)
    for step in job.steps(8):
        with job.section("forward_backward"):
            model(job.batch(64)).sum().backward()
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            dist.all_reduce(model.weight.grad)
        dist.broadcast(torch.zeros(1), src=0)  # SEEN
        model.zero_grad()
"""


def run_pytest(folder: Path, *arguments: str) -> tuple[float, str]:
    """Seconds and output of one run."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    # pytest keeps what it makes of plugins' sources, whatever the shell of a developer forbids.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr)
    return seconds, done.stdout


def write_scenarios(folder: Path, count: int) -> None:
    for number in range(count):
        name = f"skips_{number:03d}"
        (folder / f"hanglab_{name}.py").write_text(_HEADER + _SCENARIO.format(name=name))


def overhead(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        for number in range(10):
            tests = [f"def test_{k}(): assert {k} >= 0\n" for k in range(50)]
            (folder / f"test_unrelated_{number}.py").write_text("".join(tests))
        with_it, without = [], []
        for turn in range(rounds + 1):
            quick = ["-q", "-p", "no:hypothesispytest", "-p", "no:anyio"]
            one = run_pytest(folder, *quick)[0]
            other = run_pytest(folder, *quick, "-p", "no:hanglab")[0]
            if turn:  # the first fills caches
                with_it.append(one)
                without.append(other)
    cost = statistics.median(a - b for a, b in zip(with_it, without, strict=True))
    print(
        f"unrelated suite of 500 tests: {statistics.median(without):.3f} s without, "
        f"{statistics.median(with_it):.3f} s with the plugin; median difference "
        f"{1000 * cost:.1f} ms (limit 20 ms)"
    )


def collection() -> None:
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        write_scenarios(folder, 100)
        arguments = ["--collect-only", "-q", "-p", "no:hypothesispytest"]
        run_pytest(folder, *arguments)
        runs = [run_pytest(folder, *arguments) for _ in range(5)]
        took = [
            float(match[1])
            for _, out in runs
            if (match := re.search(r"200 tests collected in ([\d.]+)s", out))
        ]
        whole = statistics.median(seconds for seconds, _ in runs)
    print(
        f"collection of 100 scenarios, 200 items: {statistics.median(took):.2f} s, "
        f"{whole:.2f} s with pytest's own start (limit 1 s)"
    )


def workers(counts: list[int], rounds: int) -> None:
    took: dict[int, list[float]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        write_scenarios(folder, 20)
        run_pytest(folder, "-q", "-n", "2", "-k", "skips_000")  # fills caches
        for _ in range(rounds):
            for count in counts:
                took[count].append(run_pytest(folder, "-q", "-n", str(count))[0])
                print(f"40 items with -n {count}: {took[count][-1]:.1f} s", flush=True)
    if {0, 2} <= took.keys():
        ratios = [alone / two for alone, two in zip(took[0], took[2], strict=True)]
        cores = len(os.sched_getaffinity(0))
        print(
            f"{statistics.median(ratios):.2f} times faster with -n 2 on {cores} cores, median of "
            f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} (limit 1.7)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=["overhead", "collection", "workers"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--worker-rounds", type=int, default=3)
    options = parser.parse_args()
    if options.part in (None, "overhead"):
        overhead(options.rounds)
    if options.part in (None, "collection"):
        collection()
    if options.part in (None, "workers"):
        workers(options.workers, options.worker_rounds)


if __name__ == "__main__":
    main()
