"""``hanglab record -- srun`` over both nodes of a real Slurm: one Case, one verdict, no remains."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conditions import PATIENCE_S, wait_for
from installed import needs_torch

from hanglab.analyzer.engine import analyze
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.system import procfs, socket_folders
from tools.slurm_cluster import SlurmCluster

pytestmark = [needs_torch, pytest.mark.slow]

#: Rank 3, of the second node, does as it is told at step 20; else all go on.
PROGRAM = """\
import os, sys, time
import torch, torch.distributed as dist
rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", sys.argv[2], rank=rank, world_size=world_size)
for step in range(100_000):
    if rank == 3 and step == 20 and sys.argv[1] == "hangs":
        time.sleep(1000)
    if rank == 3 and step == 20 and sys.argv[1] == "fails":
        raise RuntimeError("out of luck")
    dist.all_reduce(torch.ones(1))
    if rank == 0 and step in (0, 15):
        print("is at", step, time.time(), flush=True)
    time.sleep(0.02)
"""
SRUN = ["srun", "--nodes=2", "--ntasks-per-node=2"]
ALLOCATION = ["--nodes=2", "--ntasks-per-node=2"]


def command(folder: Path, what: str, case: Path, hang_after_s: float = 3.0) -> list[str]:
    """Words that record the program."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    record = [sys.executable, "-m", "hanglab.harness.cli", "record", "--out", str(case)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    job = [*SRUN, sys.executable, str(script), what, address]
    return [*record, "--hang-after", str(hang_after_s), "--", *job]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANGLAB_")}
    return {**kept, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@contextmanager
def started(words: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process whose words go to a file, ``said``, in the folder."""
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            words, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=said,
            stderr=said, start_new_session=True, text=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


def said(folder: Path) -> str:
    with suppress(FileNotFoundError):  # Slurm makes it
        return (folder / "said").read_text()
    return ""


def nothing_is_left(cluster: SlurmCluster, folder: Path, case: Path) -> None:
    wait_for(lambda: not cluster.run("squeue", "--noheader").strip(), "the job to be gone")
    words = os.fspath(folder)
    wait_for(
        lambda: (
            not any(words in word for pid in procfs.everyone() for word in procfs.command_line(pid))
        ),
        "all processes to be gone",
    )
    for host in CaseReader(case).hosts:
        assert not socket_folders.of_host(case, host).exists()


@pytest.mark.parametrize(
    ("what", "code", "status", "hang_after_s"),
    # Peers of one that fails end one after the other, which takes seconds on a busy machine.
    [("hangs", 124, "hung", 3.0), ("fails", 1, "failed", 60.0)],
)
def test_ranks_of_both_nodes_are_in_one_case(
    what: str, code: int, status: str, hang_after_s: float, cluster: SlurmCluster, tmp_path: Path
) -> None:
    case = tmp_path / "case"
    words = ["salloc", *ALLOCATION, *command(tmp_path, what, case, hang_after_s)]
    with started(words, tmp_path) as process:
        assert process.wait(PATIENCE_S) == code, said(tmp_path)
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits) == (status, [3])
    assert said(tmp_path).count("verdict:") == 1 and f"verdict: {status}" in said(tmp_path)
    reader = CaseReader(case)
    assert {(rank.host, rank.rank) for rank in reader.ranks} == {
        ("n1", 0), ("n1", 1), ("n2", 2), ("n2", 3),
    }  # fmt: skip
    if what == "hangs":
        assert all(
            rank.read(files.STACKS) and rank.read(files.FLIGHT_RECORDER) for rank in reader.ranks
        )
    scheduler = reader.read(files.SCHEDULER)
    assert scheduler is not None and scheduler.asked_to_end is None
    nothing_is_left(cluster, tmp_path, case)


def test_job_that_is_begun_anew_goes_on_in_its_case(cluster: SlurmCluster, tmp_path: Path) -> None:
    case, script = tmp_path / "case", tmp_path / "job.sh"
    goes_on, hangs = (shlex.join(command(tmp_path, what, case)) for what in ("goes on", "hangs"))
    cases = f"case ${{SLURM_RESTART_COUNT:-0}} in\n0) {goes_on} ;;\n*) {hangs} ;;\nesac"
    script.write_text(f"#!/bin/sh\n{cases}\necho code $?\n")
    options = ["--requeue", "--open-mode=append", f"--output={tmp_path / 'said'}"]
    job = cluster.run("sbatch", "--parsable", *ALLOCATION, *options, str(script)).strip()
    wait_for(lambda: "is at 15" in said(tmp_path), "the job to go on")
    cluster.run("scontrol", "requeue", job)
    wait_for(lambda: "verdict:" in said(tmp_path), "the verdict on the first attempt")
    assert "Slurm ended the job to start it anew; until then it made progress" in said(tmp_path)
    wait_for(
        lambda: "PENDING" in cluster.run("squeue", "--noheader", "--jobs", job, "--format=%T"),
        "the job to wait for its next attempt",
    )
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: "code 124" in said(tmp_path), "the end of the second attempt")
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits) == ("hung", [3])
    assert {(rank.host, rank.rank, rank.attempt) for rank in CaseReader(case).ranks} == {
        ("n1", 0, 1), ("n1", 1, 1), ("n2", 2, 1), ("n2", 3, 1),
    }  # fmt: skip
    nothing_is_left(cluster, tmp_path, case)


def test_job_that_somebody_cancels_blames_no_rank(cluster: SlurmCluster, tmp_path: Path) -> None:
    case = tmp_path / "case"
    words = ["salloc", *ALLOCATION, *command(tmp_path, "goes on", case)]
    with started(words, tmp_path) as process:
        wait_for(lambda: "is at 15" in said(tmp_path), "the job to go on")
        (job,) = re.findall(r"Granted job allocation (\d+)", said(tmp_path))
        cluster.run("scancel", job)
        assert process.wait(PATIENCE_S) != 124
        wait_for(lambda: "the Case is" in said(tmp_path), "the verdict")
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits) == ("healthy", [])
    assert "Slurm ended the job because somebody cancelled it" in verdict.summary
    nothing_is_left(cluster, tmp_path, case)


def test_ctrl_c_captures_both_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Without an allocation around: srun makes one for its step."""
    case = tmp_path / "case"
    with started(command(tmp_path, "hangs", case, hang_after_s=100.0), tmp_path) as process:
        wait_for(lambda: "is at 15" in said(tmp_path), "the job to go on")
        wait_for(lambda: agents_of(case) == 3, "the agents")
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        wait_for(lambda: CaseReader(case).read(files.JOB) is not None, "the capture")
        while "forcing job termination" not in said(tmp_path):
            process.send_signal(signal.SIGINT)  # srun wants two within a second
            time.sleep(0.3)
        assert process.wait(PATIENCE_S) == 130, said(tmp_path)
    reader = CaseReader(case)
    assert all(rank.read(files.STACKS) for rank in reader.ranks)
    assert {rank.rank for rank in reader.ranks} == {0, 1, 2, 3}
    assert analyze(case).culprits in ([], [3])
    nothing_is_left(cluster, tmp_path, case)


def agents_of(case: Path) -> int:
    lines = map(procfs.command_line, procfs.everyone())
    words = {"hanglab.recorder.agent", str(case)}
    return sum(words <= set(line) and "--jobid" not in line for line in lines)


def test_agents_go_where_record_is_killed(cluster: SlurmCluster, tmp_path: Path) -> None:
    case = tmp_path / "case"
    with started(command(tmp_path, "goes on", case), tmp_path) as process:
        wait_for(lambda: agents_of(case) == 3, "the agents")
        wait_for(lambda: "is at 15" in said(tmp_path), "the job to go on")
        process.kill()
        wait_for(lambda: agents_of(case) == 0, "the agents to be gone")
        assert len(CaseReader(case).ranks) == 4
        assert cluster.run("squeue", "--noheader").strip(), "the job goes on"
        cluster.run("scancel", "--me")
    wait_for(lambda: not cluster.run("squeue", "--noheader").strip(), "the job to be gone")
    socket_folders.sweep()  # as the next agent does: the ranks had their sockets there to the end
    nothing_is_left(cluster, tmp_path, case)


def test_folder_that_nodes_do_not_share_is_told(cluster: SlurmCluster, tmp_path: Path) -> None:
    if cluster.unshared is None:
        pytest.skip("a node with a folder of its own needs the right to mount one")
    case = cluster.unshared / "case"
    with started(["salloc", *ALLOCATION, *command(tmp_path, "hangs", case)], tmp_path) as process:
        assert process.wait(PATIENCE_S) == 124, said(tmp_path)
    told = f"node n2 does not see {case}, so its ranks are not recorded"
    assert said(tmp_path).count(told) == 1
    assert {rank.rank for rank in CaseReader(case).ranks} == {0, 1}
    assert analyze(case).culprits == []
    nothing_is_left(cluster, tmp_path, case)


def test_without_slurm_record_says_so_in_a_sentence(tmp_path: Path) -> None:
    case = tmp_path / "case"
    words = command(tmp_path, "hangs", case)
    ran = subprocess.run(
        words,
        cwd=tmp_path,
        env={**environment(), "PATH": os.fspath(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode != 0
    (sentence, *advice) = ran.stderr.splitlines()
    assert "srun" in sentence and "Traceback" not in ran.stderr and len(advice) <= 1
    assert not case.exists()


def test_wrong_partition_is_told_and_blames_nobody(cluster: SlurmCluster, tmp_path: Path) -> None:
    case = tmp_path / "case"
    words = command(tmp_path, "hangs", case)
    words.insert(words.index("srun") + 1, "--partition=nowhere")
    with started(words, tmp_path) as process:
        assert process.wait(PATIENCE_S) == 1
    assert said(tmp_path).count("invalid partition specified: nowhere") == 1
    assert "Traceback" not in said(tmp_path)
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits) == ("inconclusive", [])
    nothing_is_left(cluster, tmp_path, case)


def test_a_queue_that_does_not_start_the_job_is_no_hang(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    case = tmp_path / "case"
    words = command(tmp_path, "hangs", case, hang_after_s=1.0)
    words.insert(words.index("srun") + 1, "--partition=closed")
    with started(words, tmp_path) as process:
        wait_for(lambda: "queued and waiting for resources" in said(tmp_path), "the queue")
        until = time.monotonic() + 5.0  # several times what makes a hang of a job
        wait_for(lambda: process.poll() is not None or time.monotonic() > until)
        assert process.poll() is None, said(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130, said(tmp_path)
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits) == ("inconclusive", [])
    nothing_is_left(cluster, tmp_path, case)


@contextmanager
def away(cluster: SlurmCluster) -> Iterator[None]:
    """The controller answers nobody, as on a host that is gone."""
    configuration = os.fspath(cluster.configuration)
    pids = [
        pid
        for pid in procfs.everyone()
        if "slurmctld" in " ".join(procfs.command_line(pid))
        and procfs.environment(pid).get("SLURM_CONF") == configuration
    ]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.long  # Slurm itself looks for its controller every minute or so
def test_a_controller_that_goes_away_costs_nothing_that_was_collected(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    case = tmp_path / "case"
    with started(command(tmp_path, "hangs", case), tmp_path) as process:
        wait_for(lambda: "is at 15" in said(tmp_path), "the job to be at work")
        wait_for(lambda: agents_of(case) == 3, "the agents")
        with away(cluster):
            assert process.wait(PATIENCE_S) == 124, said(tmp_path)
    assert "Traceback" not in said(tmp_path)
    # Nobody can be asked to end them.
    told = "hanglab: ranks on other nodes are left: `squeue --steps` shows them"
    assert said(tmp_path).count(told) == 1
    assert len(CaseReader(case).ranks) == 4
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits) == ("hung", [3])
    cluster.run("scancel", "--me")
    wait_for(lambda: not cluster.run("squeue", "--noheader").strip(), "the job to be gone")
    socket_folders.sweep()  # the ranks had their sockets there to the end
    nothing_is_left(cluster, tmp_path, case)
