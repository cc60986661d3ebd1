"""``hanglab live``: a recorded job on the screen while it runs, and its verdict at the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from conditions import wait_for
from installed import needs_torch
from recording_support import HANGLAB, PATIENCE, hanglab, program, started

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

pytestmark = needs_torch

#: What moves a cursor or colours a text.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def recorded(tmp_path: Path, hang_after: str, how: str = "hang") -> list[str | Path]:
    command = program("spawned_program.py", how, str(tmp_path / "store"))
    options = ["--out", tmp_path / "case", "--hang-after", hang_after]
    return [*HANGLAB, "record", *options, "--", *command]


def pids_of(case: Path) -> dict[int, int]:
    """Processes of the ranks that have registered so far."""
    if not (case / "hosts").is_dir():
        return {}
    described = {rank.rank: rank.read(files.PROCESS) for rank in CaseReader(case).ranks}
    return {rank: one.pid for rank, one in described.items() if one is not None}


@pytest.mark.slow
def test_lines_at_changes_and_the_verdict_where_the_job_hangs(tmp_path):
    with started(recorded(tmp_path, "15"), tmp_path) as job:
        wait_for(lambda: pids_of(tmp_path / "case").get(1))
        pids = pids_of(tmp_path / "case")
        # By a rank and by whoever started the launcher.
        by_rank = hanglab("live", str(pids[1]), cwd=tmp_path)
        assert job.wait(PATIENCE) == 124
    assert by_rank.returncode == 0, by_rank.stderr
    lines = by_rank.stdout.splitlines()
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d  2 ranks on 1 host, .*", line) for line in lines)
    waiting = [line for line in lines if "for rank 1, since" in line]
    assert len(waiting) == 1, "a wait is told once"
    assert re.search(
        r"rank 0 is in all_reduce #6 of default_pg, \w+\.py:\d+, for rank 1", waiting[0]
    )
    assert any("rank 1 is outside of communication, since" in line for line in lines)
    verdict = next(number for number, line in enumerate(lines) if "verdict: hung" in line)
    assert verdict > lines.index(waiting[0])
    assert not _ESCAPES.search(by_rank.stdout)


def waits_told(tmp_path: Path, how: str, line: str) -> str:
    """The line with that in it which `hanglab live` prints of a job on the emulated device."""
    command = program("device_program.py", how, str(tmp_path / "store"))
    options = ["--out", tmp_path / "case", "--hang-after", "240"]
    with started([*HANGLAB, "record", *options, "--", *command], tmp_path) as job:
        wait_for(lambda: len(pids_of(tmp_path / "case")) == 3)
        with started([*HANGLAB, "live", str(job.pid)], tmp_path, stderr=None) as live:
            assert live.stdout is not None
            told = next(one for one in live.stdout if line in one)
        assert not list((tmp_path / "case").rglob("flight_recorder*")), "nothing was captured"
        assert job.poll() is None
        return told


@pytest.mark.slow
def test_a_device_that_waits_for_a_peer_that_has_launched_nothing(tmp_path):
    told = waits_told(tmp_path, "away", "for rank 1")
    assert re.search(
        r"the devices of ranks 0 and 2 are in all_reduce #6 of default_pg, "
        r"device_program\.py:28, for rank 1, since \d\d:",
        told,
    )


@pytest.mark.slow
def test_devices_that_wait_for_each_other(tmp_path):
    told = waits_told(tmp_path, "exchange", "for rank 2")
    assert "the device of rank 0 is in recv from rank 2 of pair, device_program.py:27" in told


@pytest.mark.slow
def test_a_terminal_shows_who_waits_and_ctrl_c_leaves_the_job_alone(tmp_path):
    with started(recorded(tmp_path, "120"), tmp_path) as job:
        wait_for(lambda: pids_of(tmp_path / "case").get(1))
        mine, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
        screen = b""

        def read() -> str:
            nonlocal screen
            with contextlib.suppress(BlockingIOError):
                screen += os.read(mine, 1 << 16)
            return screen.decode()

        os.set_blocking(mine, False)
        command = [*HANGLAB, "live", str(job.pid)]
        variables = {"TERM": "xterm-256color", "COLUMNS": "", "NO_COLOR": ""}
        with started(
            command, tmp_path, stdout=its, stderr=subprocess.PIPE, stdin=its, variables=variables
        ) as live:
            wait_for(lambda: "all_reduce #6 of default_pg" in read() and "rank 1" in read())
            live.send_signal(signal.SIGINT)
            assert live.wait(PATIENCE) == 130
            read()
        os.close(its)
        os.close(mine)
        text = _ESCAPES.sub("", screen.decode())
        assert "2 ranks on 1 host" in text and "waits for" in text and "Ctrl-C leaves" in text
        assert screen.count(b"\x1b[?25l") == screen.count(b"\x1b[?25h") > 0, "the cursor is back"
        assert job.poll() is None
        assert all(Path(f"/proc/{pid}").exists() for pid in pids_of(tmp_path / "case").values())
        assert not list((tmp_path / "case").rglob("stacks.jsonl")), "nothing was captured"
        job.send_signal(signal.SIGINT)
        assert job.wait(PATIENCE) == 130


def test_a_job_that_ends_by_itself_has_its_verdict(tmp_path):
    with started(recorded(tmp_path, "60", "raise"), tmp_path) as job:
        wait_for(lambda: (tmp_path / "case" / "hosts").is_dir())
        seen = hanglab("live", tmp_path / "case", cwd=tmp_path)
        job.wait(PATIENCE)
    assert seen.returncode == 0, seen.stderr
    assert "verdict: failed, exception" in seen.stdout
    again = hanglab("live", tmp_path / "case", cwd=tmp_path)
    assert again.stdout.startswith("╭─ verdict: failed, exception"), "it is over already"


def test_what_nobody_records_is_said(tmp_path):
    # Nobody's child: other tests' jobs, which are recorded, run below this process.
    orphaned = "sleep 600 > /dev/null 2>&1 & echo $!"
    pid = int(subprocess.run(["sh", "-c", orphaned], stdout=subprocess.PIPE, check=True).stdout)
    try:
        other = hanglab("live", str(pid), cwd=tmp_path)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert other.returncode == 4 and "Nobody records the job" in other.stderr
    assert "hanglab capture PID" in other.stderr
    gone = hanglab("live", "4194305", cwd=tmp_path)
    assert gone.returncode == 64 and "There is no process 4194305" in gone.stderr
    nothing = hanglab("live", tmp_path, cwd=tmp_path)
    assert nothing.returncode == 64 and "is no Case" in nothing.stderr
