"""Jobs that nobody started with hanglab: captured while they run, or recording themselves."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from installed import needs_torch
from recording_support import (
    HANGLAB,
    PROGRAMS,
    below,
    environment,
    hanglab,
    program,
    started,
    trigger_of,
)

from hanglab import scenarios
from hanglab.analyzer.engine import analyze
from hanglab.harness.recording.running_jobs import ranks_of
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.system import procfs

pytestmark = needs_torch


@contextlib.contextmanager
def hanging(tmp_path: Path, *before: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [*before, *program("spawned_program.py", "hang", str(tmp_path / "store"))]
    with started(command, tmp_path, stderr=subprocess.DEVNULL) as job:
        wait_for((tmp_path / "store.hangs").exists, "the job to hang")
        yield job


def captured(case: Path) -> bool:
    try:
        return bool(json.loads((case / "job.json").read_bytes()).get("trigger"))
    except (OSError, ValueError):
        return False


def ranks_below(pid: int) -> list[int]:
    """Forked ranks of the launcher ``pid``: they bear its command line."""
    found = []
    for one in below(pid):
        with contextlib.suppress(OSError):
            if _command_line(one) == _command_line(pid):
                found.append(one)
    return sorted(found)


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_of_several_words_each_is_a_process(tmp_path):
    done = hanglab("capture", "1", "case", cwd=tmp_path)
    assert done.returncode == 64
    assert "each must be a rank's process id" in done.stderr


def test_a_thread_of_the_kernel_is_no_rank_and_no_want_of_rights(tmp_path):
    name = Path("/proc/2/comm")
    if not name.exists() or name.read_text() != "kthreadd\n":
        pytest.skip("no thread of the kernel can be seen: run outside of containers")
    done = hanglab("capture", "2", cwd=tmp_path)
    assert done.returncode == 4
    assert "Process 2 is a thread of the kernel" in done.stderr
    assert "CAP_SYS_PTRACE" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("which", ["launcher", pytest.param("rank", marks=pytest.mark.long)])
def test_job_that_nobody_records(tmp_path, which):
    case = tmp_path / "case"
    with hanging(tmp_path) as job:
        pid = job.pid if which == "launcher" else ranks_below(job.pid)[-1]
        done = hanglab("capture", str(pid), "--out", case, "--watch", "1", cwd=tmp_path)
        assert done.returncode in (0, 2), done.stderr
        assert job.poll() is None and len(ranks_below(job.pid)) == 2, "the job goes on"
    reader = CaseReader(case)
    assert [rank.rank for rank in reader.ranks] == [0, 1]
    for rank in reader.ranks:
        functions = {
            f.function for s in rank.read(files.STACKS) for t in s.threads for f in t.frames
        }
        assert "work" in functions
        assert [s.state for s in rank.read(files.PROCESSES) if s.kind == "rank"][-1] in "SR"
        assert (
            rank.read(files.PROCESS) is not None and rank.read(files.PROCESS).python.torch_version
        )
    assert trigger_of(case)[0] == "no_progress"
    reasons = {(a.what, a.rank) for a in reader.absent}
    assert {("progress.bin", 0), ("progress.bin", 1), ("flight_recorder.pickle", 0)} <= reasons
    assert analyze(case).culprits in ([1], [])


def test_recorded_job_is_captured_into_its_own_case(tmp_path):
    case = tmp_path / "case"
    record = [*HANGLAB, "record", "--out", case, "--hang-after", "2", "--then", "leave", "--"]
    with hanging(tmp_path, *record) as job:
        # Its own agent has seen it hang; before that a capture would meet it in any step.
        wait_for(lambda: captured(case), "the capture of the hang")
        done = hanglab("capture", case, "--json", cwd=tmp_path)
        verdict = json.loads(done.stdout)
        assert (done.returncode, verdict["status"], verdict["culprits"]) == (0, "hung", [1])
        done = hanglab("capture", str(job.pid), "--out", tmp_path / "copy", cwd=tmp_path)
        assert done.returncode == 0 and analyze(tmp_path / "copy").culprits == [1]
        agent = next(
            pid
            for pid in below(job.pid)
            if b"hanglab.recorder.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(agent, signal.SIGKILL)
        done = hanglab("capture", case, "--watch", "1", "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["culprits"] == [1], "another agent takes its place"
    done = hanglab("capture", case, cwd=tmp_path)
    assert done.returncode == 4 and "runs here any more" in done.stderr


def test_capture_of_a_recorded_job_at_rest_says_what_it_waits_for(tmp_path):
    case = tmp_path / "case"
    record = [*HANGLAB, "record", "--out", case, "--hang-after", "12", "--then", "leave", "--"]
    with hanging(tmp_path, *record) as job:

        def waited() -> subprocess.CompletedProcess[str] | None:
            """None where the capture came so early that its last steps still counted."""
            done = hanglab("capture", str(job.pid), "--json", cwd=tmp_path)
            return done if "has rested" in done.stderr else None

        done = wait_for(waited, "a capture of the job at rest")
    assert json.loads(done.stdout)["culprits"] == [1]
    lines = re.findall(r"has rested for (\d+) s; its recorder counts .* after (\d+) s", done.stderr)
    assert lines and all(0 <= int(rested) <= int(limit) for rested, limit in lines), done.stderr
    assert {int(limit) for _, limit in lines} >= {12}, "the recorder's own limit"


def in_code(tmp_path: Path, temporary: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    variables = environment(STORE=str(tmp_path / "store"), TMPDIR=str(temporary))
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "in_code_program.py"), *arguments],
            env={**variables, "NUMBER": str(rank)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


@contextlib.contextmanager
def ended(ranks: list[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            for pipe in (rank.stdout, rank.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.mark.slow
def test_ranks_share_one_case_and_one_agent(tmp_path, temporary):
    case = tmp_path / "case"
    ranks = in_code(tmp_path, temporary, str(case), "1", "hang")
    with ended(ranks):
        wait_for((case / "manifest.json").exists, "the capture")
        verdict = analyze(case)
        assert (verdict.status.value, verdict.culprits) == ("hung", [1])
        hosts = list((case / "hosts").iterdir())
        assert len(hosts) == 1 and len(list((hosts[0] / "ranks").iterdir())) == 2
    reader = CaseReader(case)
    assert {
        e.section
        for r in reader.ranks
        if r.read(files.PROGRESS)
        for e in r.read(files.PROGRESS).section_events
    } == {"forward"}
    wait_for(lambda: _over(case), "the agent to end")


def _over(case: Path) -> bool:
    job = CaseReader(case).job
    return job is not None and job.ended is not None


@pytest.mark.slow
def test_job_that_ends_well_leaves_a_case(tmp_path, temporary):
    case = tmp_path / "case"
    ranks = in_code(tmp_path, temporary, str(case), "30", "well")
    with ended(ranks):
        outputs = [rank.communicate(timeout=280) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], outputs
        assert [out for out, _ in outputs] == ["done 8.0\n", "done 8.0\n"]
        wait_for(lambda: _over(case), "the agent to end")
    reader = CaseReader(case)
    assert [bool(rank.read(files.FLIGHT_RECORDER)) for rank in reader.ranks] == [True, True]
    assert trigger_of(case) == ("", "")


@pytest.mark.slow
def test_job_that_cannot_be_recorded_goes_on(tmp_path, temporary):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    ranks = in_code(tmp_path, temporary, str(taken), "30", "well")
    with ended(ranks):
        outputs = [rank.communicate(timeout=280) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0]
    assert all("is not recorded" in err and "not empty" in err for _, err in outputs)
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert not runtimes_in(temporary)


def runtimes_in(temporary: Path) -> list[Path]:
    """What the recorder keeps among the temporary files."""
    return list(temporary.glob("hanglab-*"))


def sockets_in(temporary: Path) -> list[Path]:
    return list(temporary.glob("hanglab-*/????????????/rank-*.sock"))


@pytest.mark.long
def test_nothing_stays_of_a_job_that_records_itself(tmp_path, temporary):
    ranks = in_code(tmp_path, temporary, str(tmp_path / "case"), "30", "well")
    with ended(ranks):
        for rank in ranks:
            rank.communicate(timeout=280)
        wait_for(lambda: not runtimes_in(temporary), "the agent to clear away")


@pytest.mark.slow
def test_what_a_killed_agent_leaves_the_next_one_removes(tmp_path, temporary):
    case = tmp_path / "case"
    ranks = in_code(tmp_path, temporary, str(case), "600", "hang")
    record = ("record", "--out", tmp_path / "next", "--", "true")
    with ended(ranks):
        wait_for(lambda: len(sockets_in(temporary)) == 2, "the ranks to listen")
        os.kill(agent_of(case), signal.SIGKILL)
        hanglab(*record, cwd=tmp_path, TMPDIR=str(temporary))
        assert len(sockets_in(temporary)) == 2, "the ranks still listen there"
    numbers = itertools.count()

    def swept() -> bool:
        words = ("record", "--out", tmp_path / f"case{next(numbers)}", "--", "true")
        hanglab(*words, cwd=tmp_path, TMPDIR=str(temporary))
        return not runtimes_in(temporary)

    wait_for(swept, "the next agent to remove the folder and the note")


def agent_of(case: Path) -> int:
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if b"hanglab.recorder.agent" in words and os.fsencode(case) in words:
                return int(name)
    raise AssertionError("no agent")


def test_forked_ranks_that_know_their_numbers_alone_are_known_by_their_case(tmp_path: Path) -> None:
    scenario = Path(scenarios.__file__).parent / "synchronization" / "skipped_collective.py"
    words = [*HANGLAB, "run", scenario, "--no-control", "--hang-after", "60"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(words, tmp_path, **quiet) as run:

        def registered() -> list[int]:
            hosts = tmp_path.glob("runs/2*/skipped_collective/fault/0/case/hosts")
            ranks = [one for found in hosts for one in CaseReader(found.parent).ranks]
            return [one.pid for rank in ranks if (one := rank.read(files.PROCESS)) is not None]

        pids = wait_for(lambda: len(found := registered()) == 4 and found, "four ranks")
        assert "RANK" not in procfs.environment(pids[2]), "or this shows nothing"
        ranks = ranks_of(pids[2])
        assert {rank.pid: rank.rank for rank in ranks}.keys() == set(pids)
        assert sorted(rank.rank for rank in ranks) == [0, 1, 2, 3]
        run.send_signal(signal.SIGINT)
        run.wait(60)
