"""Start of a job on two nodes of Slurm, up to its first collective, and what its ends leave.

    python -m tools.slurm_cluster -- python benchmarks/slurm_start.py [--starts 5] [--no-ends]

The start is from the call of ``start`` to the moment at which the last of 2 x 2 ranks has its
first result, recorder on.  Then a job is ended in each of twenty ways, and 30 s later at most no
process and no job of it may be left.  Both on an otherwise empty Slurm of this machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.slurm.launcher import SlurmLauncher
from hanglab.recorder.system import procfs

LIMIT_S = 15.0
_NODES, _RANKS = 2, 4
#: For a job to be up, and for all of it to be gone.
_UP_S = 120.0
_GONE_S = 30.0

_RANK = """\
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print(time.time(), flush=True)
dist.destroy_process_group()
"""
#: Ranks that end as a file says, or go on; each has a child in a session of its own.
_ENDS = """\
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", __file__],
                 start_new_session=True)
print("up", flush=True)
said = __file__ + ".say"
while not os.path.exists(said):
    time.sleep(0.05)
sys.exit(int(open(said).read() or 0) if os.environ["RANK"] == "0" else 0)
"""

#: Ends a job whose hanglab is this process; the folder is that of the job.
End = Callable[[subprocess.Popen[bytes], Path], None]


def first_collective(launcher: SlurmLauncher) -> tuple[float, float]:
    """Seconds up to the last rank's first result, and seconds to end the job."""
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        script = folder / "first_collective.py"
        script.write_text(_RANK)
        plan = JobPlan(
            run_dir=folder,
            case_dir=folder / "case",
            script=script,
            function=None,
            world_size=_RANKS,
            nodes=_NODES,
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
        logs = [plan.log_dir / f"rank{rank}.out" for rank in range(_RANKS)]
        return max(float(log.read_text()) for log in logs) - begun, ended


def slurm(*words: str) -> str:
    """Output of a command of Slurm's."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def job_number() -> str:
    """Number of the job that runs."""
    return slurm("squeue", "--noheader", "--format=%A").split()[0]


def sent(number: signal.Signals) -> End:
    return lambda hanglab, folder: hanglab.send_signal(number)


def _said(code: int) -> End:
    return lambda hanglab, folder: (folder / "ends.py.say").write_text(str(code)) and None


def _asked(*words: str) -> End:
    def end(hanglab: subprocess.Popen[bytes], folder: Path) -> None:
        slurm(*(word.format(job=job_number()) for word in words))

    return end


def killed(needle: str, number: signal.Signals = signal.SIGKILL, all_: bool = False) -> End:
    """Sends a signal to the first process of the job, or all, whose command line names this."""

    def end(hanglab: subprocess.Popen[bytes], folder: Path) -> None:
        job = job_number()
        words = needle.format(job=job)
        lines = {pid: " ".join(procfs.command_line(pid)) for pid in procfs.everyone()}
        found = [pid for pid, line in lines.items() if words in line and os.fspath(folder) in line]
        for pid in sorted(found)[: None if all_ else 1]:
            os.kill(pid, number)

    return end


def twice(hanglab: subprocess.Popen[bytes], folder: Path) -> None:
    hanglab.send_signal(signal.SIGINT)
    time.sleep(0.2)
    hanglab.send_signal(signal.SIGINT)


_URGENT = ("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null")
ENDS: dict[str, End] = {
    "all ranks end well": _said(0),
    "a rank fails": _said(3),
    "SIGINT to hanglab": sent(signal.SIGINT),
    "SIGINT twice": twice,
    "SIGTERM to hanglab": sent(signal.SIGTERM),
    "SIGHUP to hanglab": sent(signal.SIGHUP),
    "SIGKILL to hanglab": sent(signal.SIGKILL),
    "scancel": _asked("scancel", "{job}"),
    "scancel --full": _asked("scancel", "--full", "{job}"),
    "scancel --signal=KILL": _asked("scancel", "--signal=KILL", "{job}"),
    "scancel of a step": _asked("scancel", "{job}.0"),
    "time limit": _asked("scontrol", "update", "JobId={job}", "EndTime=now"),
    "preemption": _asked(*_URGENT, "--wrap=true"),
    "SIGKILL to the batch script": _asked("scancel", "--batch", "--signal=KILL", "{job}"),
    "SIGKILL to a rank": killed("gated_rank"),
    "SIGKILL to all ranks": killed("gated_rank", all_=True),
    "SIGKILL to a node's process": killed("slurm.node_main 1"),
    "SIGKILL to an srun": killed("srun --jobid {job}"),
    "SIGKILL to an agent": killed("recorder.agent --several"),
    "SIGSTOP to a node's process": killed("slurm.node_main 1", signal.SIGSTOP),
}


def left_after(end: End) -> tuple[str, float]:
    """Words for what a job so ended leaves, "" for nothing, and seconds until it was gone."""
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        script = folder / "ends.py"
        script.write_text(_ENDS)
        command = [sys.executable, "-m", "hanglab.harness.cli", "run", os.fspath(script)]
        command += ["--launcher", "slurm", "--nodes", str(_NODES), "--world-size", str(_RANKS)]
        hanglab = subprocess.Popen(
            [*command, "--deadline", "20"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + _UP_S
        logs = "runs/2*/*/*/*/log/rank*.out"
        while sum(bool(log.read_text()) for log in folder.glob(logs)) < _RANKS:
            if time.monotonic() > until or hanglab.poll() is not None:
                hanglab.kill()
                return "the job did not come up", 0.0
            time.sleep(0.05)
        begun = time.monotonic()
        end(hanglab, folder)
        left = ""
        while time.monotonic() < begun + _GONE_S + 30:
            if hanglab.poll() is not None:
                left = left_of(folder)
                if not left:
                    return "", time.monotonic() - begun
            time.sleep(0.1)
        hanglab.kill()
        return left or "hanglab still runs", time.monotonic() - begun


def left_of(folder: Path) -> str:
    """Processes that name the folder, and jobs, in words."""
    words = os.fspath(folder)
    pids = [p for p in procfs.everyone() if words in " ".join(procfs.command_line(p))]
    jobs = slurm("squeue", "--noheader", "--format=%A").split()
    return " ".join([*(f"process {pid}" for pid in pids), *(f"job {job}" for job in jobs)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--no-ends", action="store_true")
    options = parser.parse_args()
    launcher = SlurmLauncher()
    try:
        times = [first_collective(launcher) for _ in range(options.starts)]
    finally:
        launcher.close()
    starts, ends = zip(*times, strict=True)
    median = statistics.median(starts)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {options.starts} starts")
    print(
        f"first collective of {_NODES} nodes x {_RANKS // _NODES} ranks   median {median:.2f} s   "
        f"fastest {min(starts):.2f} s   slowest {max(starts):.2f} s   limit {LIMIT_S:g} s   "
        f"{'kept' if median < LIMIT_S else 'MISSED'}"
    )
    print(f"end of the job   median {statistics.median(ends):.2f} s", flush=True)
    for name, end in () if options.no_ends else ENDS.items():
        left, seconds = left_after(end)
        words = f"left: {left}" if left else f"nothing left after {seconds:.1f} s"
        print(f"{name:30} {words}", flush=True)


if __name__ == "__main__":
    main()
