"""Jobs of hanglab on a real Slurm of two nodes: their Case, their faults, and their end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conditions import PATIENCE_S, wait_for

from hanglab.analyzer.engine import analyze
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.harness.launchers.slurm import job as slurm_job
from hanglab.harness.launchers.slurm.errors import NotShared, NotStarted, NotSubmitted
from hanglab.harness.launchers.slurm.launcher import SlurmLauncher
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.writer import write
from hanglab.recorder.system import procfs
from tools.slurm_cluster import SlurmCluster

#: Sleeps until it is ended, with a name in its command line to find it by.
SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
#: Goes on until it is ended.
LOOPS = """\
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(1))
    print("went on", flush=True)
    time.sleep(0.02)
"""
TELLS = """\
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
         "SLURMD_NODENAME", "HANGLAB_FAULT", "CUDA_VISIBLE_DEVICES")
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
raise SystemExit(int(os.environ["RANK"]))
"""


@pytest.fixture
def launcher(cluster: SlurmCluster) -> Iterator[SlurmLauncher]:
    made = SlurmLauncher()
    yield made
    made.close()
    no_jobs(cluster)


def no_jobs(cluster: SlurmCluster) -> None:
    wait_for(lambda: not cluster.run("squeue", "--noheader").strip(), "the job to be gone")


def processes_of(folder: Path) -> list[int]:
    """Processes whose command line names something below a folder."""
    words = os.fspath(folder)
    return [
        pid
        for pid in procfs.everyone()
        if any(words in word for word in procfs.command_line(pid)) and pid != os.getpid()
    ]


def make_plan(folder: Path, program: str, **changes: Any) -> JobPlan:
    run_dir = folder / "run"
    run_dir.mkdir()
    script = folder / "program.py"
    script.write_text(program)
    values: dict[str, Any] = {
        "run_dir": run_dir, "case_dir": run_dir / "case", "script": script, "function": None,
        "world_size": 3, "faulty": True, "seed": 0, "backend": "gloo", "deadline_s": PATIENCE_S,
        "nodes": 2,
    }  # fmt: skip
    return JobPlan(**{**values, **changes})


def test_ranks_are_placed_on_nodes_and_their_ends_are_told(
    launcher: SlurmLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    plan = make_plan(tmp_path, TELLS, environment={"CUDA_VISIBLE_DEVICES": "3"})
    job = launcher.start(plan)
    exits = []
    wait_for(lambda: exits.extend(job.events(0.1)) or len(exits) == 3, "all ranks' ends")
    assert {(gone.rank, gone.code) for gone in exits} == {(0, 0), (1, 1), (2, 2)}
    told = [json.loads((plan.log_dir / f"rank{rank}.out").read_text()) for rank in range(3)]
    assert [one["SLURMD_NODENAME"] for one in told] == ["n1", "n1", "n2"]
    assert [one["LOCAL_RANK"] for one in told] == ["0", "1", "0"]
    assert {one["MASTER_ADDR"] for one in told} == {"127.0.0.1"}
    job.end()
    assert not list(plan.run_dir.glob("slurm-*"))


def run_cli(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hanglab.harness.cli", "run", "--launcher", "slurm", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_frozen_rank_is_named_from_the_evidence_of_both_nodes(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    ran = run_cli(tmp_path, "process_frozen", "--nodes", "2", "--no-control", "--world-size", "3")
    said, _ = ran.communicate(timeout=PATIENCE_S)
    assert ran.returncode == 0, said
    (folder,) = tmp_path.glob("runs/2*/process_frozen/fault/0")
    case = CaseReader(folder / "case")
    assert sorted(case.hosts) == ["n1", "n2"]
    scheduler = case.read(files.SCHEDULER)
    assert scheduler is not None
    assert (scheduler.name, scheduler.asked_to_end) == ("slurm", None)
    truth = json.loads((folder / "truth.json").read_text())
    (strike,) = truth["faults"]
    assert strike["struck_ns"] is not None and strike["pid"] is not None
    no_jobs(cluster)


def test_a_job_that_slurm_ends_blames_no_rank(cluster: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "loops.py"
    script.write_text(LOOPS)
    ran = run_cli(tmp_path, str(script), "--world-size", "2", "--nodes", "2")
    out = "runs/2*/loops/*/0/log/rank1.out"
    try:
        wait_for(
            lambda: any(path.read_text().count("went on") > 20 for path in tmp_path.glob(out)),
            "the ranks to go on",
        )
        cluster.run(
            "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null",
            "--wrap=true",
        )  # fmt: skip
        said, _ = ran.communicate(timeout=PATIENCE_S)
    finally:
        ran.kill()
    assert ran.returncode == 0, said
    (folder,) = tmp_path.glob("runs/2*/loops/*/0")
    found = json.loads((folder / "verdict.json").read_text())
    assert (found["status"], found["culprits"]) == ("healthy", [])
    assert "Slurm ended the job to give its nodes to a job of higher priority" in found["summary"]
    scheduler = CaseReader(folder / "case").read(files.SCHEDULER)
    assert scheduler is not None and scheduler.state == "PREEMPTED"
    for state, words in (("TIMEOUT", "at its time limit"), ("CANCELLED", "somebody cancelled it")):
        write(folder / "case", files.SCHEDULER, msgspec.structs.replace(scheduler, state=state))
        assert words in analyze(folder / "case").summary
    no_jobs(cluster)


def test_nothing_is_left_where_hanglab_is_killed(cluster: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    ran = run_cli(tmp_path, str(script), "--world-size", "2", "--nodes", "2")
    try:
        wait_for(lambda: len(list(tmp_path.glob("runs/2*/*/*/*/log/rank*.out"))) == 2, "ranks")
        wait_for(lambda: len(processes_of(script)) > 2, "ranks")
    finally:
        ran.send_signal(signal.SIGKILL)
        ran.communicate(timeout=PATIENCE_S)
    no_jobs(cluster)
    wait_for(lambda: not processes_of(tmp_path), "all processes to be gone")


def test_a_job_that_waits_ends_with_hanglab(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = cluster.run(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    )
    try:
        stop = threading.Event()
        threading.Timer(1.0, stop.set).start()
        with pytest.raises(NotStarted, match=r"interrupted while the job waited"):
            SlurmLauncher().start(make_plan(tmp_path, SLEEPS, stop=stop))
        monkeypatch.setenv("HANGLAB_SLURM_WAIT", "1")
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(
            NotStarted, match=r"not started the job within 1 s .(Resources|Priority)"
        ):
            SlurmLauncher().start(make_plan(other, SLEEPS))
        waiting = cluster.run("squeue", "--noheader", "--states=PENDING")
        assert not waiting.strip()
    finally:
        cluster.run("scancel", holder.strip())
    no_jobs(cluster)


@pytest.mark.parametrize(
    ("variable", "value", "error", "words"),
    [
        ("SBATCH_PARTITION", "nowhere", NotSubmitted, "invalid partition specified: nowhere"),
        ("SBATCH_PARTITION", "closed", NotStarted, "does not start the job .PartitionDown"),
    ],
)
def test_what_slurm_refuses_is_one_sentence(
    variable: str,
    value: str,
    error: type[LaunchError],
    words: str,
    launcher: SlurmLauncher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(error, match=words) as raised:
        launcher.start(make_plan(tmp_path, SLEEPS))
    assert "\n" not in str(raised.value)


def test_a_folder_that_nodes_do_not_share_is_told(
    launcher: SlurmLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = slurm_job.StepLinks.start

    def elsewhere(self: Any, number: int, job: str, node: str, command: list[str]) -> None:
        """The second node looks for the folder where its own disk has none."""
        command = [*command[:-1], f"/nowhere{command[-1]}"] if number else command
        started(self, number, job, node, command)

    monkeypatch.setattr(slurm_job.StepLinks, "start", elsewhere)
    with pytest.raises(NotShared, match=r"Node n2 does not see .*/run of this host"):
        launcher.start(make_plan(tmp_path, SLEEPS))


def test_a_node_without_hanglab_is_told(
    launcher: SlurmLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(LaunchError, match=r"Node n1 ended early: .*No such file or directory"):
        launcher.start(make_plan(tmp_path, SLEEPS, nodes=1))
