"""``hanglab profile`` on jobs under ``hanglab record``: the command, the Case, the requests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from installed import needs_torch

from hanglab.recorder import profile as ask_from_inside
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

pytestmark = needs_torch

PROGRAM = Path(__file__).parent / "programs" / "training_program.py"
INSIDE = Path(__file__).parent / "programs" / "asking_program.py"
STRAGGLING = Path(__file__).parent / "programs" / "straggling_program.py"
HANGLAB = [sys.executable, "-m", "hanglab.harness.cli"]


@contextlib.contextmanager
def recorded(
    case: Path, notes: Path, *words: str, options: tuple[str, ...] = (), ranks: int = 2
) -> Iterator[subprocess.Popen[str]]:
    log = case.with_suffix(".log")
    command = [*HANGLAB, "record", "--out", str(case), *options, "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--nproc-per-node", str(ranks), *words],
            stdout=out,
            stderr=out,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(notes)},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(280)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(notes: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HANGLAB, *words],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "XDG_RUNTIME_DIR": str(notes)},
        check=False,
    )


def trains(case: Path) -> bool:
    log = case.with_suffix(".log")
    return log.exists() and log.read_text().count(" trains") >= 2


@pytest.mark.long
def test_traces_of_a_recorded_job_come_here_and_into_the_case(tmp_path: Path) -> None:
    case, out = tmp_path / "case", tmp_path / "out"
    with recorded(case, tmp_path, str(PROGRAM), "900"):
        wait_for(lambda: trains(case), "training")
        listed = run(tmp_path, "profile", "--list")
        assert listed.returncode == 0, listed.stderr
        done = run(tmp_path, "profile", str(case), "--duration-ms", "200", "--out", str(out))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("valid") == 2
        names = sorted(path.name for path in out.iterdir())
        assert [name.split(".")[0] for name in names] == ["rank0", "rank1"]
        again = run(
            tmp_path, "profile", "--ranks", "1", "--iterations", "3", "--out", str(out), "--json"
        )
        assert again.returncode == 0, again.stdout + again.stderr
        (receipt,) = json.loads(again.stdout)["receipts"]
        assert (receipt["rank"], receipt["state"]) == (1, "valid")
        # Nothing that was there was overwritten.
        assert sorted(p.name for p in out.iterdir() if p.is_file()) == names
        early = run(tmp_path, "profile", str(case), "--start-in", "0.1")
        assert early.returncode == 64
        assert "earliest common start" in early.stderr
        passed = run(tmp_path, "profile", str(case), "--iterations", "2", "--at-iteration", "1")
        assert passed.returncode == 64
        assert "earliest common start is at iteration" in passed.stderr
        nobody = run(tmp_path, "profile", "--ranks", "7")
        assert nobody.returncode == 1
        assert "ranks 7" in nobody.stdout
    traces = {rank.rank: rank.read(files.TRACES) for rank in CaseReader(case).ranks}
    assert [len(traces[rank]) for rank in (0, 1)] == [1, 2]


@pytest.mark.long
def test_job_asks_for_a_trace_of_itself_and_a_slow_step_does(tmp_path: Path) -> None:
    case = tmp_path / "case"
    with recorded(case, tmp_path, str(INSIDE), options=("--profile-slow", "5")) as process:
        assert process.wait(280) == 0, case.with_suffix(".log").read_text()
    ranks = {
        rank.rank: [json.loads(data) for data in rank.read(files.TRACES)]
        for rank in CaseReader(case).ranks
    }
    # The slow step has a trace of all ranks, what the job asked for one of rank 1.
    assert [len(ranks[rank]) for rank in (0, 1)] == [1, 2]


def test_outside_of_a_recording_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANGLAB_RUNTIME", raising=False)
    assert ask_from_inside() is False


def test_without_an_agent_it_is_said_what_to_start(tmp_path: Path) -> None:
    done = run(tmp_path, "profile")
    assert done.returncode == 4
    assert "hanglab record" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--at-iteration", "5"], "--iterations"),
        (["--iterations", "3", "--start-in", "9"], "--start-in is a time"),
        (["--ranks", "a-b"], "no rank"),
        (["--host", "x y"], "no host name"),
        (["--hostfile", "/none"], "cannot be read"),
    ],
)
def test_wrong_words(tmp_path: Path, words: list[str], text: str) -> None:
    done = run(tmp_path, "profile", *words)
    assert done.returncode in (4, 64)
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_hosts_fail_each_for_itself(tmp_path: Path) -> None:
    done = run(tmp_path, "profile", "--host", "127.0.0.1:1,127.0.0.2:1")
    assert done.returncode == 1
    assert done.stdout.count("refused") == 2


@pytest.mark.long
@pytest.mark.parametrize("options", [("--profile-slow", "1000"), ()])
def test_rank_that_the_jobs_detector_calls_slow_is_traced_where_that_was_asked_for(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    case = tmp_path / "case"

    def traced() -> list[str]:
        return sorted(path.parts[-3] for path in case.glob("hosts/*/ranks/*/traces/*.json"))

    with recorded(case, tmp_path, str(STRAGGLING), "900", options=options, ranks=3):
        wait_for(lambda: bool(flagged(case)), "a report")
        if options:
            wait_for(lambda: bool(traced()), "its trace")
        else:
            # Reports that follow are seen by the agent at its next look, twice a second.
            seen = flagged(case)
            wait_for(lambda: flagged(case) > seen + 2, "more reports")
        assert traced() == (["1.0"] if options else [])


def flagged(case: Path) -> int:
    """Reports in which rank 1 is called slow."""
    return sum(
        file.read_text().count('"slow": [1]')
        for file in case.glob("hosts/*/ranks/*/straggler.jsonl")
    )
