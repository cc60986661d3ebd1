"""Remains of a job that ``hanglab record -- srun`` records on two nodes, however it ends.

    python -m tools.slurm_cluster -- python benchmarks/slurm_record.py [--only WORDS]

A job of 2 x 2 ranks is ended in each of twenty ways.  30 s after ``record`` has ended no process,
no job and no socket folder of it may be left.  Beside each stand the status of its Case, who is
blamed, and how many of the four ranks it holds.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from slurm_start import End, job_number, killed, left_of, sent, slurm

from hanglab.analyzer.engine import analyze
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.system import procfs, socket_folders

_RANKS = 4
_UP_S, _GONE_S = 120.0, 30.0
_HANG_AFTER_S = 5.0
_SRUN = ("srun", "--nodes=2", "--ntasks-per-node=2")

#: Ranks that all_reduce until a file says how they end; rank 3 does that, the others go on.
_PROGRAM = """\
import os, time
import torch, torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", "file://" + __file__ + ".store", rank=rank, world_size=4)
said = __file__ + ".say"
step = 0
while True:
    over = torch.tensor([float(os.path.exists(said) and open(said).read() == "well")])
    dist.all_reduce(over)
    step += 1
    if step == 5:
        print("up", flush=True)
    if over.item():
        break
    if rank == 3 and os.path.exists(said):
        what = open(said).read()
        if what == "raise":
            raise RuntimeError("out of luck")
        if what == "exit":
            os._exit(3)
        if what == "hang":
            time.sleep(1000)
    time.sleep(0.02)
"""


def _said(what: str) -> End:
    def end(record: subprocess.Popen[bytes], folder: Path) -> None:
        beside = folder / "ends.new"
        beside.write_text(what)
        beside.rename(folder / "ends.py.say")

    return end


def _asked(*words: str) -> End:
    def end(record: subprocess.Popen[bytes], folder: Path) -> None:
        slurm(*(word.format(job=job_number()) for word in words))

    return end


def _killed_record(record: subprocess.Popen[bytes], folder: Path) -> None:
    """The job goes on without it, as it should; Slurm is asked to end it then."""
    record.kill()
    time.sleep(2.0)
    slurm("scancel", job_number())


def _ranks(number: signal.Signals, all_: bool = False) -> End:
    def end(record: subprocess.Popen[bytes], folder: Path) -> None:
        script = os.fspath(folder / "ends.py")
        pids = [pid for pid in procfs.everyone() if procfs.command_line(pid)[1:2] == [script]]
        assert len(pids) == _RANKS, pids
        if not all_:
            (folder / "struck").write_text(procfs.environment(pids[0])["SLURM_PROCID"])
        for pid in pids if all_ else pids[:1]:
            os.kill(pid, number)

    return end


def _twice(record: subprocess.Popen[bytes], folder: Path) -> None:
    """As a terminal does it, to the whole group; srun ends its ranks at two within a second."""
    os.killpg(record.pid, signal.SIGINT)
    time.sleep(0.3)
    os.killpg(record.pid, signal.SIGINT)


def _interrupted(record: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(20):
        os.killpg(record.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            record.wait(0.5)
            return


def _killed_srun(record: subprocess.Popen[bytes], folder: Path) -> None:
    words = [*_SRUN, sys.executable, os.fspath(folder / "ends.py")]
    found = [pid for pid in procfs.everyone() if procfs.command_line(pid) == words]
    assert found
    os.kill(min(found), signal.SIGKILL)


def _then_well(first: End) -> End:
    """The job goes on, as it should, and ends by itself."""

    def end(record: subprocess.Popen[bytes], folder: Path) -> None:
        first(record, folder)
        time.sleep(2.0)
        _said("well")(record, folder)

    return end


_URGENT = ("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null")
ENDS: dict[str, End] = {
    "all ranks end well": _said("well"),
    "a rank raises": _said("raise"),
    "a rank exits with 3": _said("exit"),
    "a rank hangs": _said("hang"),
    "Ctrl-C twice": _twice,
    "Ctrl-C until it ends": _interrupted,
    "SIGTERM to record": sent(signal.SIGTERM),
    "SIGHUP to record": sent(signal.SIGHUP),
    "SIGKILL to record, scancel": _killed_record,
    "scancel": _asked("scancel", "{job}"),
    "scancel --signal=KILL": _asked("scancel", "--signal=KILL", "{job}"),
    "scancel of the ranks' step": _asked("scancel", "{job}.0"),
    "time limit": _asked("scontrol", "update", "JobId={job}", "EndTime=now"),
    "preemption": _asked(*_URGENT, "--wrap=true"),
    "SIGKILL to a rank": _ranks(signal.SIGKILL),
    "SIGKILL to all ranks": _ranks(signal.SIGKILL, all_=True),
    "SIGSTOP to a rank": _ranks(signal.SIGSTOP),
    "SIGKILL to the user's srun": _killed_srun,
    "SIGKILL to an agent": _then_well(killed("recorder.agent --several")),
    "SIGKILL to an agent's srun": _then_well(killed("srun --jobid {job}")),
}


def left_after(end: End, show: bool) -> str:
    """Words for what a job so ended leaves, and for its Case."""
    with tempfile.TemporaryDirectory(prefix="hl-bench-") as name:
        folder = Path(name)
        script, case, told = folder / "ends.py", folder / "case", folder / "told"
        script.write_text(_PROGRAM)
        words = [sys.executable, "-m", "hanglab.harness.cli", "record", "--out", os.fspath(case)]
        words += ["--hang-after", f"{_HANG_AFTER_S:g}", "--"]
        words += [*_SRUN, sys.executable, os.fspath(script)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        with told.open("wb") as file:
            record = subprocess.Popen(
                words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True,
            )  # fmt: skip
        try:
            return _left_after(end, record, folder, case, told)
        finally:
            if show:
                print(told.read_text())
            with suppress(ProcessLookupError):
                os.killpg(record.pid, signal.SIGKILL)
            record.wait()
            slurm("scancel", "--me")
            for pid in procfs.everyone():
                if os.fspath(folder) in " ".join(procfs.command_line(pid)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            while slurm("squeue", "--noheader", "--me"):
                time.sleep(0.2)


def _left_after(
    end: End, record: subprocess.Popen[bytes], folder: Path, case: Path, told: Path
) -> str:
    until = time.monotonic() + _UP_S
    while told.read_text().count("up\n") < _RANKS:
        if time.monotonic() > until or record.poll() is not None:
            return f"the job did not come up: {told.read_text()}"
        time.sleep(0.05)
    begun = time.monotonic()
    end(record, folder)
    ended, left = 0.0, "record still runs"
    while left and time.monotonic() < (ended or begun + 60.0) + _GONE_S:
        if not ended and record.poll() is not None:
            ended = time.monotonic()
        left = _left(folder, case) if ended else left
        time.sleep(0.1)
    words = f"left: {left}" if left else f"nothing left after {time.monotonic() - begun:.1f} s"
    verdict = analyze(case)
    blamed = ", ".join(map(str, verdict.culprits)) or "nobody"
    struck = folder / "struck"
    was = f" (it was {struck.read_text()})" if struck.exists() else ""
    status = f"{verdict.status.value}, {blamed}{was}"
    return f"{words:34} code {record.returncode!s:4}  {len(CaseReader(case).ranks)} ranks  {status}"


def _left(folder: Path, case: Path) -> str:
    hosts = CaseReader(case).hosts if (case / "hosts").is_dir() else []
    sockets = [str(path) for h in hosts if (path := socket_folders.of_host(case, h)).exists()]
    return " ".join(filter(None, [left_of(folder), *sockets]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="print what record said")
    parser.add_argument("--only", default="", help="part of the names of endings to try")
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    for name, end in ENDS.items():
        if options.only in name:
            print(f"{name:28} {left_after(end, options.show)}", flush=True)


if __name__ == "__main__":
    main()
