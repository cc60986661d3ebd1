"""A recorder that fails, for whatever reason, neither stops nor changes the job."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
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
)
from small_disks import small_disk

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

pytestmark = needs_torch

SEEDED = PROGRAMS / "seeded_program.py"


def seeded(tmp_path: Path, number: int) -> list[str]:
    return program(SEEDED.name, str(tmp_path / f"store{number}"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> str:
    """What the job prints when nobody records it."""
    folder = tmp_path_factory.mktemp("plain")
    done = subprocess.run(
        seeded(folder, 0),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    assert done.stdout.count("loss") == 16 and done.stdout.count("weights") == 2
    return "\n".join(sorted(done.stdout.splitlines()))


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return "\n".join(sorted(done.stdout.splitlines()))


@pytest.mark.long
def test_losses_and_weights_are_the_same_bit_for_bit(tmp_path, plain):
    case = tmp_path / "case"
    done = hanglab("record", "--out", case, "--", *seeded(tmp_path, 1), cwd=tmp_path)
    assert output_of(done) == plain
    assert [rank.read(files.PROGRESS) is not None for rank in CaseReader(case).ranks] == [
        True,
        True,
    ]


@pytest.mark.long
def test_unwritable_folder(tmp_path, plain):
    # /proc takes no folders from anybody, root included.
    done = hanglab(
        "record", "--out", "/proc/hanglab-case", "--", *seeded(tmp_path, 1), cwd=tmp_path
    )
    assert output_of(done) == plain
    where = done.stderr.partition("recording into ")[2].split()[0]
    try:
        assert "cannot be written" in done.stderr
        assert len(CaseReader(where).ranks) == 2
    finally:
        subprocess.run(["rm", "-r", where], check=True)


@pytest.mark.long
@pytest.mark.parametrize("size", ["64k", "2m"])
def test_full_disk(tmp_path, plain, size):
    with small_disk(tmp_path / "disk", size) as disk:
        done = hanglab("record", "--out", disk / "case", "--", *seeded(tmp_path, 1), cwd=tmp_path)
        assert output_of(done) == plain
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_full_disk_is_said_in_a_sentence(tmp_path, when):
    fill = "import sys\nwith open(sys.argv[1], 'wb', 0) as file:\n    file.write(bytes(9 << 20))"
    with small_disk(tmp_path / "disk", "8m") as disk:
        words = ["-c", fill, disk / "filling"]
        if when == "before":
            subprocess.run([sys.executable, *words], check=False)
            words = ["-c", "pass"]
        command = ("record", "--out", disk / "case", "--", sys.executable, *words)
        done = hanglab(*command, cwd=tmp_path)
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "is full" in line]
    assert len(said) == 1
    assert "free" in said[0] and "--out" in said[0]


def test_room_enough_is_not_worth_a_word(tmp_path):
    done = hanglab("record", "--out", tmp_path / "case", "--", "true", cwd=tmp_path)
    assert done.returncode == 0 and "is full" not in done.stderr


@pytest.mark.slow
def test_killed_agent(tmp_path, plain):
    case = tmp_path / "case"
    command = program(SEEDED.name, str(tmp_path / "store"), str(tmp_path / "go"))
    with started([*HANGLAB, "record", "--out", case, "--", *command], tmp_path) as process:

        def agent() -> int | None:
            for pid in below(process.pid):
                with contextlib.suppress(OSError):
                    if b"hanglab.recorder.agent" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return pid
            return None

        wait_for((tmp_path / "go.waits").exists, "the job to be at work")
        os.kill(agent() or 0, signal.SIGKILL)
        (tmp_path / "go").touch()
        out, err = process.communicate(timeout=280)
    assert (process.returncode, "\n".join(sorted(out.splitlines()))) == (0, plain)
    assert "goes on without it" in err and "Traceback" not in err
    reader = CaseReader(case)
    assert [rank.read(files.PROGRESS) is not None for rank in reader.ranks] == [True, True]
    assert any(absence.what == "agent" for absence in reader.absent)


@pytest.mark.slow
def test_killed_hanglab(tmp_path, plain, temporary):
    """The job writes into a relay that outlives hanglab, so it does not even notice."""
    command = program(SEEDED.name, str(tmp_path / "store"), str(tmp_path / "go"))
    words = [*HANGLAB, "record", "--out", tmp_path / "case", "--", *command]
    more = {"variables": {"TMPDIR": str(temporary)}}
    with (
        (tmp_path / "out").open("w") as out,
        started(words, tmp_path, stdout=out, **more) as process,
    ):
        wait_for((tmp_path / "go.waits").exists, "the job to be at work")
        job = [pid for pid in below(process.pid) if _runs(pid, SEEDED.name)]
        try:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(280)
            (tmp_path / "go").touch()
            wait_for(
                lambda: (tmp_path / "out").read_text().count("weights") == 2, "the job to finish"
            )
        finally:
            for pid in job:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert "\n".join(sorted((tmp_path / "out").read_text().splitlines())) == plain
    wait_for((tmp_path / "case" / "manifest.json").exists, "the agent to put the Case in order")
    ranks = CaseReader(tmp_path / "case").ranks
    assert [rank.read(files.PROGRESS) is not None for rank in ranks] == [True, True]


def test_what_a_killed_hanglab_leaves_the_next_one_removes(tmp_path, temporary):
    go, numbers = tmp_path / "go", itertools.count()
    text = (
        "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
    )
    words = [*HANGLAB, "record", "--out", tmp_path / "case", "--", sys.executable, "-c", text, go]

    def left_by_the_next() -> list[Path]:
        case = tmp_path / f"case{next(numbers)}"
        hanglab("record", "--out", case, "--", "true", cwd=tmp_path, TMPDIR=str(temporary))
        return list(temporary.iterdir())

    with started(words, tmp_path, variables={"TMPDIR": str(temporary)}) as process:
        try:
            [socket] = wait_for(lambda: list(temporary.glob("hl-*/agent.sock")), "the agent")
            process.kill()
            process.wait(280)
            assert socket.parent in left_by_the_next(), "the command's relay is still at work there"
        finally:
            go.touch()
        wait_for(lambda: left_by_the_next() == [], "the next one to remove what was left")


def _runs(pid: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        return name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_no_right_to_look_into_processes(tmp_path):
    case = tmp_path / "case"
    command = program("spawned_program.py", "hang", str(tmp_path / "store"))
    # Without the right, a process that is not dumpable cannot be looked into.
    drop = ["setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace"]
    done = subprocess.run(
        [*drop, *HANGLAB, "record", "--out", case, "--hang-after", "2", "--", *command],
        cwd=tmp_path,
        env=environment(UNDUMPABLE="1"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 124, done.stderr
    ranks = CaseReader(case).ranks
    assert [{sample.source for sample in rank.read(files.STACKS)} for rank in ranks] == [
        {"in-rank"}
    ] * 2


@pytest.mark.slow
def test_verdict_that_cannot_be_written_does_not_cost_the_exit_code(tmp_path):
    (tmp_path / "file").touch()
    words = ["sh", "-c", "exit 7"]
    options = ["--out", tmp_path / "case", "--json", tmp_path / "file" / "verdict.json"]
    done = hanglab("record", *options, "--", *words, cwd=tmp_path)
    assert done.returncode == 7
    assert "verdict.json cannot be written" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_command_that_starts_no_rank_is_told_of_as_such(tmp_path):
    done = hanglab("record", "--out", tmp_path / "case", "--", "sh", "-c", "exit 7", cwd=tmp_path)
    assert done.returncode == 7
    assert "No rank was found" in done.stderr and "recorder.start()" in done.stderr
    assert "with stacks and host evidence" not in done.stderr
