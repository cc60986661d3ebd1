"""``hanglab record``: any command, its own output, signals and exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from conditions import wait_for
from installed import needs_torch
from recording_support import HANGLAB, PROGRAMS, free_port, hanglab, program, started, trigger_of

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

pytestmark = needs_torch


def test_spawned_ranks_that_hang_are_captured_and_ended(tmp_path):
    case = tmp_path / "case"
    command = program("spawned_program.py", "hang", str(tmp_path / "store"))
    done = hanglab("record", "--out", case, "--hang-after", "2", "--", *command, cwd=tmp_path)
    assert done.returncode == 124, done.stderr
    assert "missing_rank" in done.stderr and done.stderr.count("╭─ verdict") == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == [str(n) for n in range(5)]
    verdict = analyze(case)
    assert (verdict.status.value, verdict.culprits, verdict.victims) == ("hung", [1], [0])
    reader = CaseReader(case)
    assert [rank.rank for rank in reader.ranks] == [0, 1]
    assert all(
        rank.read(files.FLIGHT_RECORDER) and rank.read(files.PROGRESS) for rank in reader.ranks
    )
    assert reader.job is not None and reader.job.ended_by_recorder
    modes = {path.stat().st_mode & 0o077 for path in [case, *case.rglob("*")]}
    assert modes == {0}, "a Case is its owner's alone"


@pytest.mark.long
@pytest.mark.slow
def test_exit_code_output_and_exception_of_a_failing_job(tmp_path):
    case = tmp_path / "case"
    command = program("spawned_program.py", "raise", str(tmp_path / "store"))
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    (tmp_path / "store").unlink(missing_ok=True)
    done = hanglab("record", "--out", case, "--", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (1, plain.stdout)
    assert "ValueError: the sixth step" in done.stderr
    verdict = analyze(case)
    assert (verdict.status.value, verdict.cause.value) == ("failed", "exception")
    assert verdict.culprits == [1]
    assert verdict.location is not None and verdict.location.function == "work"
    # Whose exception spawn prints, that of rank 1 or of its peer that lost it, is chance.
    tail = next(CaseReader(case).path.glob("hosts/*/stderr.txt")).read_text().splitlines()
    assert any(line.startswith("torch.multiprocessing.spawn.Process") for line in tail)
    assert set(tail) <= set(done.stderr.splitlines())


@pytest.mark.slow
def test_launcher_tells_how_its_ranks_ended(tmp_path):
    case = tmp_path / "case"
    command = program("spawned_program.py", "die", str(tmp_path / "store"))
    hanglab("record", "--out", case, "--", *command, cwd=tmp_path)
    ends = {rank.rank: rank.read(files.EXIT) for rank in CaseReader(case).ranks}
    assert ends[1] is not None and ends[1].code == 7
    assert ends[0] is not None, "spawn ends the others by a signal and collects them as well"
    assert analyze(case).culprits == [1]


def test_everything_is_passed_through(tmp_path):
    text = (
        "import os, sys; data = sys.stdin.read(); print(data.upper(), end=''); "
        "print('warned', file=sys.stderr); sys.exit(int(os.environ['CODE']))"
    )
    with started(
        [*HANGLAB, "record", "--out", tmp_path / "case", "--", sys.executable, "-c", text],
        tmp_path,
        stdin=subprocess.PIPE,
        variables={"CODE": "41"},
    ) as process:
        out, err = process.communicate("abc\n", timeout=280)
    assert (process.returncode, out) == (41, "ABC\n")
    assert err.startswith("warned\n")


def test_same_place_for_output_and_error_keeps_their_order(tmp_path):
    text = (
        "import sys\nfor n in range(300):\n"
        " print('out', n, flush=True)\n print('err', n, file=sys.stderr, flush=True)"
    )
    with started(
        [*HANGLAB, "record", "--out", tmp_path / "case", "--", sys.executable, "-c", text],
        tmp_path,
        stderr=subprocess.STDOUT,
    ) as process:
        out, _ = process.communicate(timeout=280)
    lines = [line for line in out.splitlines() if line[:3] in ("out", "err")]
    assert lines == [f"{what} {n}" for n in range(300) for what in ("out", "err")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_end_by_a_signal_is_told_as_shells_do(tmp_path, number):
    text = f"import os; os.kill(os.getpid(), {int(number)})"
    done = hanglab(
        "record", "--out", tmp_path / "case", "--", sys.executable, "-c", text, cwd=tmp_path
    )
    assert done.returncode == 128 + number


def test_ctrl_c_captures_first_and_exits_with_130(tmp_path):
    case, store = tmp_path / "case", tmp_path / "store"
    command = program("spawned_program.py", "hang", str(store))
    words = [*HANGLAB, "record", "--out", case, "--hang-after", "60", "--", *command]
    with started(words, tmp_path) as process:
        wait_for((tmp_path / "store.hangs").exists, "the job to hang")
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=280)
    assert process.returncode == 130
    assert trigger_of(case) == ("interrupt", "hanglab was sent SIGINT")
    ranks = CaseReader(case).ranks
    assert [
        bool(rank.read(files.FLIGHT_RECORDER) and rank.read(files.STACKS)) for rank in ranks
    ] == [True, True]


def test_termination_is_passed_on(tmp_path):
    case, store = tmp_path / "case", tmp_path / "store"
    command = program("spawned_program.py", "hang", str(store))
    words = [*HANGLAB, "record", "--out", case, "--hang-after", "60", "--", *command]
    with started(words, tmp_path) as process:
        wait_for((tmp_path / "store.hangs").exists, "the job to hang")
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=280)
    assert process.returncode == 128 + signal.SIGTERM
    assert trigger_of(case)[0] == "interrupt"


@pytest.mark.slow
def test_hung_job_is_left_if_asked(tmp_path):
    case, store = tmp_path / "case", tmp_path / "store"
    command = program("spawned_program.py", "hang", str(store))
    words = [*HANGLAB, "record", "--out", case, "--hang-after", "2", "--then", "leave"]
    with started([*words, "--", *command], tmp_path) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "left as it is" in line:
                break
        assert process.poll() is None
        assert analyze(case).culprits == [1], "the Case is whole while the job still hangs"
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=280)
        assert process.returncode == 130


@pytest.mark.slow
def test_capture_is_dropped_if_the_job_goes_on(tmp_path):
    case, pipe, stop = tmp_path / "case", tmp_path / "pipe", tmp_path / "stop"
    os.mkfifo(pipe)
    command = program("pausing_program.py", str(pipe), str(stop))
    words = [*HANGLAB, "record", "-o", case, "--hang-after", "1", "--then", "leave"]
    with started([*words, "--", *command], tmp_path) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "left as it is" in line:
                break
        assert trigger_of(case)[0] == "no_progress" and CaseReader(case).ranks[0].read(files.STACKS)
        # NCCL's service answers on a machine with GPUs alone: as if it had.
        (asked,) = (host / files.NCCL_RAS.name for host in case.glob("hosts/*"))
        asked.write_text("{}")
        with pipe.open("wb") as file:
            file.write(b"go on")
        wait_for(
            lambda: not CaseReader(case).ranks[0].read(files.STACKS), "the capture to be dropped"
        )
        stop.touch()
        out, err = process.communicate(timeout=280)
    assert (process.returncode, out) == (0, "done\n"), err
    reader = CaseReader(case)
    assert trigger_of(case) == ("", "") and not reader.ranks[0].read(files.STACKS)
    assert not asked.exists()
    assert (
        reader.ranks[0].read(files.EXIT) is not None and reader.ranks[0].read(files.EXIT).code == 0
    )
    assert analyze(case).status.value == "healthy"


def hung_and_interrupted(tmp_path, then):
    """The Case of a job that is interrupted after its hang was captured; see the program."""
    case = tmp_path / "case"
    command = program("interrupted_program.py", str(tmp_path / "store"), then)
    words = [*HANGLAB, "record", "--out", case, "--hang-after", "2", "--then", "leave"]
    with started([*words, "--", *command], tmp_path) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "left as it is" in line:
                break
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=280)
    assert process.returncode == 130
    verdict = analyze(case)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.MISSING_RANK)
    assert verdict.culprits == [1] and verdict.location is not None
    lines = (PROGRAMS / "interrupted_program.py").read_text().splitlines()
    assert "# away" in lines[verdict.location.line - 1]
    return CaseReader(case)


@pytest.mark.slow
def test_what_a_rank_does_when_it_is_interrupted_does_not_hide_where_it_hung(tmp_path):
    away = hung_and_interrupted(tmp_path, "tidy").ranks[1]
    assert away.read(files.PROGRESS) is not None
    assert (away.read(files.PROGRESS).phase, away.read(files.PROGRESS).operations_total) == (
        "exiting",
        4,
    )
    then = away.as_captured.read(files.PROGRESS)
    assert then is not None
    assert (then.phase, then.operations_total) == ("running", 3)
    assert away.as_captured.read(files.FLIGHT_RECORDER) != away.read(files.FLIGHT_RECORDER)


@pytest.mark.slow
def test_a_hung_job_that_ends_well_because_it_is_interrupted_is_not_healthy(tmp_path):
    reader = hung_and_interrupted(tmp_path, "swallow")
    assert [
        rank.read(files.EXIT).code for rank in reader.ranks if rank.read(files.EXIT) is not None
    ] == [0, 0]
    assert reader.job is not None and reader.job.interrupted is not None


@pytest.mark.slow
def test_rank_that_escapes_the_hook_is_attached_to(tmp_path):
    case = tmp_path / "case"
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "if dist.get_rank() == 1:\n    time.sleep(600)\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    shell = (
        f"export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}; "
        f"RANK=0 {sys.executable} {script} & "
        f"RANK=1 {sys.executable} -I {script} & wait"
    )
    done = hanglab(
        "record", "--out", case, "--hang-after", "2", "--", "bash", "-c", shell, cwd=tmp_path
    )
    assert done.returncode == 124, done.stderr
    reader = CaseReader(case)
    ranks = {rank.rank: rank for rank in reader.ranks}
    assert sorted(ranks) == [0, 1]
    assert ranks[0].read(files.FLIGHT_RECORDER) and not ranks[1].read(files.FLIGHT_RECORDER)
    assert (
        ranks[1].read(files.PROCESS) is not None
        and ranks[1].read(files.PROCESS).python.torch_version
    )
    frames = [f.file for s in ranks[1].read(files.STACKS) for t in s.threads for f in t.frames]
    assert str(script) in frames
    assert any(
        a.rank == 1 and a.what == "progress.bin" and "start-up hook" in a.reason
        for a in reader.absent
    )
    assert analyze(case).culprits in ([1], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("step", marks=pytest.mark.long),
        "native",
        pytest.param("checkpoint", marks=pytest.mark.long),
        pytest.param("ending", marks=pytest.mark.long),
    ],
)
def test_slow_is_not_hung(tmp_path, how):
    done = hanglab(
        *("record", "--out", tmp_path / "case", "--hang-after", "1", "--"),
        *program("slow_program.py", how),
        cwd=tmp_path,
        STORE=str(tmp_path / "store"),
        CHECKPOINT=str(tmp_path / "checkpoint"),
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert trigger_of(tmp_path / "case") == ("", "")
    assert analyze(tmp_path / "case").status.value in ("healthy", "slow")
