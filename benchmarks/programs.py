"""Rates and times of simulated dumps, replays, evaluations and minimisations, beside their limits.

Each file is removed once its bytes are counted, so that gigabytes of disk are not needed; every
fourth rank of the job is written.  The simulation of the job's end is part of the time.

Minimised are every scenario of synchronization that runs on gloo, the two Megatron hangs where
their dumps are, and a simulated job.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import tempfile
import time
from pathlib import Path

from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.harness.cli import main as main_of_hanglab
from hanglab.harness.corpus.entries import ARCHIVE, entry_names
from hanglab.harness.evaluation.cases import default_corpus

RANKS = 16_384
REPLAYED_RANKS = 8
MINIMISED_RANKS = 64
OPERATIONS = 2_000
EVERY = 4
#: Stored Cases that are evaluated, and how long that may take, in seconds.
EVALUATED = 1_000
EVALUATION_LIMIT_S = 60
ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ROOT / "scenarios" / "synchronization"
MEGATRON = ROOT.parent / "shared" / "data" / "megatron-nccl"
#: The most that may be left of a hang, and the longest that the simulated job's may take.
MOST_RANKS, MOST_OPERATIONS, MOST_SECONDS = 4, 10, 60.0


def main() -> None:
    print("| layout | dumps | MB a file | simulated in | MB/s with it | MB/s |")
    print("|---|---|---|---|---|---|")
    for layout in ("world", "hsdp", "3d"):
        begun = time.monotonic()
        job = SimulatedJob(
            JobOptions(RANKS, layout, "skip", operations=OPERATIONS, clock_offset_ms=100)
        )
        simulated = time.monotonic() - begun
        total = count = 0
        with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as folder:
            begun = time.monotonic()
            for rank, data in job.dumps(range(0, RANKS, EVERY)):
                write_dump(Path(folder), rank, data, job.written_ns(rank))
                total += len(data)
                count += 1
                for file in Path(folder).iterdir():
                    file.unlink()
            seconds = time.monotonic() - begun
        # Of all dumps, the simulation is as much of the time as it is of a whole job's.
        whole = seconds + simulated / EVERY
        print(
            f"| {layout} | {count:,} | {total / count / 1e6:.2f} | {simulated:.1f} s "
            f"| {total / whole / 1e6:.0f} | {total / seconds / 1e6:.0f} |",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak:.0f} MiB")
    time_replay()
    time_evaluation()
    time_minimisations()


def time_replay() -> None:
    """Time the replay of 8 ranks, from its start to its verdict."""
    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as folder:
        dumps = simulated_dumps(Path(folder) / "dumps", REPLAYED_RANKS)
        begun = time.monotonic()
        code = main_of_hanglab(["replay", str(dumps), "--out", str(Path(folder) / "runs")])
        seconds = time.monotonic() - begun
    print(f"\nreplay of {REPLAYED_RANKS} ranks x {OPERATIONS:,}: {seconds:.1f} s, exit code {code}")


def time_evaluation() -> None:
    """Time `hanglab eval` on Cases of the repository's corpus, each as often as it takes."""
    names = entry_names(default_corpus())
    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as folder:
        corpus = Path(folder) / "corpus"
        for number in range(EVALUATED):
            name = names[number % len(names)]
            for suffix in (ARCHIVE, ".json"):
                target = corpus / str(number // len(names)) / f"{name}{suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(default_corpus() / f"{name}{suffix}")
        begun, processor = time.monotonic(), _processor_seconds()
        with open(Path(folder) / "told", "w") as told, contextlib.redirect_stdout(told):
            code = main_of_hanglab(["eval", "--corpus", str(corpus)])
        seconds = time.monotonic() - begun
    print(
        f"\nevaluation of {EVALUATED:,} Cases: {seconds:.1f} s (limit {EVALUATION_LIMIT_S} s), "
        f"{_processor_seconds() - processor:.0f} s of processor time, exit code {code}"
    )


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def simulated_dumps(folder: Path, ranks: int) -> Path:
    folder.mkdir()
    job = SimulatedJob(JobOptions(ranks, "3d", "skip", operations=OPERATIONS))
    for rank, data in job.dumps():
        write_dump(folder, rank, data, job.written_ns(rank))
    return folder


def time_minimisations() -> None:
    """Shrink each hang, and print what is left beside the most that may be."""
    print("\n| minimised | ranks left | operations left | time | exit code |")
    print("|---|---|---|---|---|")
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                main_of_hanglab(["run", "--no-control", "--jobs", "2", str(SCENARIOS)])
            cases = Path("runs/latest").resolve().glob("*/fault/0")
            hangs = {case.parents[1].name: case for case in cases}
            if MEGATRON.is_dir():
                hangs |= {one.name: one for one in MEGATRON.iterdir() if one.is_dir()}
            for name, hang in sorted(hangs.items()):
                minimise(name, hang)
            dumps = simulated_dumps(Path("dumps"), MINIMISED_RANKS)
            seconds = minimise(f"{MINIMISED_RANKS} ranks x {OPERATIONS:,}", dumps)
        finally:
            os.chdir(before)
    print(
        f"\nlimits: {MOST_RANKS} ranks, {MOST_OPERATIONS} operations; "
        f"the simulated job in {seconds:.0f} s of {MOST_SECONDS:.0f} s"
    )


def minimise(name: str, hang: Path) -> float:
    """Shrink one hang, print its row of the table, and give the seconds that it took."""
    script = Path(f"{re.sub(r'[^a-z0-9]+', '_', name)}.py")
    told = io.StringIO()
    begun = time.monotonic()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
        code = main_of_hanglab(["minimise", str(hang), "-o", str(script)])
    seconds = time.monotonic() - begun
    left = re.search(r"(\d+) of \d+ ranks and (\d+) of", told.getvalue())
    ranks, operations = left.groups() if left else ("-", "-")
    print(
        f"| {name} | {ranks} of {MOST_RANKS} | {operations} of {MOST_OPERATIONS} "
        f"| {seconds:.1f} s | {code} |",
        flush=True,
    )
    return seconds


if __name__ == "__main__":
    main()
