"""Processor time and memory of ``hanglab watch`` beside a real job of eight ranks.

``python benchmarks/watch_overhead.py [--ranks 8] [--seconds 120]``
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hanglab.recorder.system import procfs

JOB = """
import time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(1000))
    time.sleep(0.2)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "train.py")
        script.write_text(JOB)
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
             str(options.ranks), str(script)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        words = Path(name, "watch.txt")
        watch = subprocess.Popen(
            [sys.executable, "-m", "hanglab.harness.cli", "watch", "--below", str(os.getpid()),
             "--state", name],
            stderr=words.open("wb"),
        )  # fmt: skip
        try:
            while f"{options.ranks} ranks here" not in words.read_text():
                time.sleep(0.5)
            time.sleep(15)
            before, begun = procfs.stat(watch.pid), time.monotonic()
            time.sleep(options.seconds)
            after, seconds = procfs.stat(watch.pid), time.monotonic() - begun
            assert before is not None and after is not None
            share = (after.cpu_s - before.cpu_s) / seconds
            processes = len(procfs.everyone())
            print(
                f"{options.ranks} ranks, {processes} processes on the host: {100 * share:.2f} % "
                f"of a core over {seconds:.0f} s, {after.rss_bytes / 2**20:.0f} MiB; "
                f"load {os.getloadavg()[0]:.1f}"
            )
        finally:
            below = procfs.descendants([job.pid])[job.pid]
            for pid in (*below, job.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            job.wait()
            watch.terminate()
            watch.wait()


if __name__ == "__main__":
    main()
