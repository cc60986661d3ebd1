"""Rate at which the dumps of a simulated job of 16,384 ranks are written, and time of a replay.

Each file is removed once its bytes are counted, so that gigabytes of disk are not needed; every
fourth rank of the job is written.  The simulation of the job's end is part of the time.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.harness.cli import main as main_of_hanglab

RANKS = 16_384
REPLAYED_RANKS = 8
OPERATIONS = 2_000
EVERY = 4


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


if __name__ == "__main__":
    main()
