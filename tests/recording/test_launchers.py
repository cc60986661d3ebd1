"""Ranks that other launchers start: found, captured and ended by ``hanglab record``."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from conditions import wait_for
from installed import needs_torch
from recording_support import PROGRAMS, free_port, hanglab, program, started

from hanglab.analyzer.engine import analyze
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader, RankCase
from hanglab.recorder.system import procfs

pytestmark = needs_torch

PROGRAM = str(PROGRAMS / "launched_program.py")


def accelerate() -> list[str]:
    pytest.importorskip("accelerate", reason="needs accelerate: pip install hanglab[frameworks]")
    options = ["--multi_gpu", "--num_processes=2", "--num_machines=1"]
    options += ["--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={free_port()}"]
    return [sys.executable, "-m", "accelerate.commands.launch", *options, PROGRAM]


def mpirun() -> list[str]:
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun: apt-get install openmpi-bin")
    options = ["--oversubscribe", "-n", "2", "--mca", "btl", "self,tcp"]
    return ["mpirun", "--allow-run-as-root", *options, sys.executable, PROGRAM]


def srun() -> list[str]:
    if shutil.which("srun") is None:
        pytest.skip("there is no srun: it comes with Slurm and needs a cluster that runs")
    words = ["srun", "--ntasks=2", "--overcommit", "--immediate=20"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("srun finds no cluster that runs two tasks: see sinfo")
    return [*words, sys.executable, PROGRAM]


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", [pytest.param(accelerate, marks=pytest.mark.long), mpirun, srun]
)
def test_hang_is_captured_and_everything_ended(tmp_path, launcher):
    case = tmp_path / "case"
    words = [*launcher(), str(tmp_path / "store")]
    done = hanglab("record", "--out", case, "--hang-after", "2", "--", *words, cwd=tmp_path)
    assert done.returncode == 124, done.stderr
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits, verdict.victims) == ("hung", [1], [0])
    ranks = CaseReader(case).ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    assert all(
        rank.read(files.FLIGHT_RECORDER) and rank.read(files.PROGRESS) and rank.read(files.STACKS)
        for rank in ranks
    )
    assert all(
        rank.read(files.PROCESS) is not None and rank.read(files.PROCESS).world_size == 2
        for rank in ranks
    )
    wait_for(lambda: not any(map(runs, ranks)), "all ranks to be gone, whoever started them")


def runs(rank: RankCase) -> bool:
    stat = (
        procfs.stat(rank.read(files.PROCESS).pid) if rank.read(files.PROCESS) is not None else None
    )
    return stat is not None and stat.state not in "ZX"


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("asks", marks=pytest.mark.long), "deaf"])
def test_ranks_of_a_service_are_ended_by_their_launcher_or_else_by_hanglab(tmp_path, how):
    case, path = tmp_path / "case", tmp_path / "service"
    with started(program("service_program.py", "serve", str(path)), tmp_path) as service:
        wait_for(path.exists, "the service to be there")
        command = program("service_program.py", "launch", str(path), how, sys.executable, PROGRAM)
        words = ["record", "--out", case, "--hang-after", "2", "--", *command, tmp_path / "store"]
        done = hanglab(*words, cwd=tmp_path)
        assert done.returncode == 124, done.stderr
        ranks = CaseReader(case).ranks
        assert [rank.rank for rank in ranks] == [0, 1]
        assert analyze(case).culprits == [1]
        wait_for(lambda: not any(map(runs, ranks)), "both ranks to be gone")
        assert service.poll() is None, "what is not of the job is left alone"
        if how == "asks":
            assert service.stdout is not None and service.stdout.readline() == "ended\n"
