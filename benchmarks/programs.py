"""Rate at which dumps of 16,384 ranks are written; time of a replay, and of an evaluation.

Each file is removed once its bytes are counted, so that gigabytes of disk are not needed; every
fourth rank of the job is written.  The simulation of the job's end is part of the time.
"""

from __future__ import annotations

import contextlib
import os
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
OPERATIONS = 2_000
EVERY = 4
#: Stored Cases that are evaluated, and how long that may take, in seconds.
EVALUATED = 1_000
EVALUATION_LIMIT_S = 60


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


def time_replay() -> None:
    """Time the replay of 8 ranks, from its start to its verdict."""
    with tempfile.TemporaryDirectory(prefix="hanglab-bench-") as folder:
        dumps = Path(folder) / "dumps"
        dumps.mkdir()
        job = SimulatedJob(JobOptions(REPLAYED_RANKS, "3d", "skip", operations=OPERATIONS))
        for rank, data in job.dumps():
            write_dump(dumps, rank, data, job.written_ns(rank))
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


if __name__ == "__main__":
    main()
