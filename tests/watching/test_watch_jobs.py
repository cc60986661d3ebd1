"""``hanglab watch`` beside real jobs that know nothing of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from installed import needs_torch

from hanglab.analyzer.engine import analyze
from hanglab.harness.watching.finding import JobFinder
from hanglab.recorder.system import procfs

sys.path.insert(0, str(Path(__file__).parents[1] / "recording"))
from recording_support import HANGLAB, environment, program, started

pytestmark = [needs_torch, pytest.mark.slow]


@contextlib.contextmanager
def watching(folder: Path, *options: str | Path) -> Iterator[Path]:
    """A watch of this test's jobs alone; the file of what it says."""
    words = folder / "watch.txt"
    # As the unit has it: root without root's rights, save these two.
    rights = "-all,+sys_ptrace,+dac_read_search"
    few = ["setpriv", "--no-new-privs", "--bounding-set", rights, "--inh-caps=-all"]
    root = os.geteuid() == 0 and shutil.which("setpriv") is not None
    command = [
        *(few if root else []),
        *HANGLAB,
        "watch",
        "--below",
        str(os.getpid()),
        "--least",
        "3",
        *map(str, options),
    ]
    command += ["--state", str(folder / "state")]
    with words.open("wb") as errors:
        watch = subprocess.Popen(command, cwd=folder, env=environment(), stderr=errors)
    try:
        wait_for(lambda: b"watching" in words.read_bytes(), "the watch to begin")
        yield words
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(60) == 0, words.read_text()
        assert "Traceback" not in words.read_text()
    finally:
        watch.kill()
        watch.wait()


@contextlib.contextmanager
def hanging(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = program("spawned_program.py", "hang", str(tmp_path / "store"))
    with started(command, tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        wait_for((tmp_path / "store.hangs").exists, "the job to hang")
        yield job


def test_a_job_that_nobody_records_is_found_captured_once_and_left_alone(tmp_path: Path) -> None:
    with hanging(tmp_path) as job, watching(tmp_path, "--out", tmp_path / "cases") as words:
        ranks = procfs.descendants([job.pid])[job.pid]
        said = wait_for(
            lambda: "Rank 1" in (text := words.read_text()) and text, "the watch to tell"
        )
        assert said.count("ranks here are watched") == 1
        (case,) = (tmp_path / "cases").glob("*/hanglab-case-*")
        verdict = analyze(case)
        assert (verdict.status.value, verdict.culprits) == ("hung", [1])
        # Found again by what it is, and not as another job because it has a Case by now.
        (found,) = JobFinder(os.getpid()).look()
        assert sorted(rank.rank for rank in found.ranks.values()) == [0, 1]
        assert all(procfs.state(pid) not in ("", "T", "Z") for pid in ranks)
        # Of who was reaped before the watch looks nobody knows how it ended.
        os.kill(job.pid, signal.SIGSTOP)
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "signal 9" in words.read_text(), "the failure to be told")
        assert list((tmp_path / "cases").glob("*/*")) == [case]
        with sqlite3.connect(tmp_path / "state" / "watch.sqlite") as history:
            told = "SELECT kind, culprits FROM events ORDER BY id"
            assert wait_for(lambda: [*history.execute(told)][1:], "the failure to be kept") == [
                ("failed", "[]")
            ]
