"""``hanglab simulate`` from its command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.harness.cli import main
from hanglab.recorder.system.mount_table import space_of

JOB = ["simulate", "--ranks", "8", "--fault", "skip", "--operations", "30", "--out"]


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in folder.iterdir()}


def test_the_same_seed_writes_the_same_files_and_the_truth_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--missing", "2", "--wrapped", "20", "--clock-offset-ms", "50"]
    for name, seed in (("one", "1"), ("same", "1"), ("other", "2")):
        assert main([*JOB, str(tmp_path / name), "--seed", seed, *more]) == 0
    one = contents(tmp_path / "one")
    assert len(one) == 6 and one == contents(tmp_path / "same")
    assert one != contents(tmp_path / "other")
    truth = json.loads((tmp_path / "one.truth.json").read_bytes())
    assert truth["fault"] == "skip" and len(truth["missing"]) == 2
    assert f"rank {truth['culprits'][0]}" in capsys.readouterr().out
    assert main(["analyze", str(tmp_path / "one")]) == 0
    assert "skipped_collective" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("kept")
    assert main([*JOB, str(full)]) == 64
    assert "is not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.rglob("*")] == ["full", "mine"]
    assert main([*JOB, str(tmp_path / "new")]) == 0
    (tmp_path / "new").rename(tmp_path / "moved")
    assert main([*JOB, str(tmp_path / "new")]) == 64
    assert "new.truth.json is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--layout", "5d"], "is not one of world"),
        (["--fault", "nothing"], "is not one of none"),
        (["--layout", "3d", "--ranks", "12"], "multiple of 8"),
        (["--fault", "unmatched"], "no place"),
        (["--clock-offset-ms", "nan"], "nan"),
        (["--missing", "8"], "cannot be missing"),
    ],
)
def test_wrong_usage_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main([*JOB, str(tmp_path / "new"), *arguments]) == 64
    assert told in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_says_how_many_dumps_are_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hanglab.harness.cli", "simulate", "--fault", "skip"]
    process = subprocess.Popen(
        [*command, "--ranks", "4096", "--out", str(tmp_path / "new")],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: [*tmp_path.glob("new/*_9")], "the tenth dump")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=280)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    there = len([*(tmp_path / "new").iterdir()])
    assert told.strip().endswith(f"interrupted; {tmp_path / 'new'} holds {there} of 4096 dumps")


def test_a_disk_without_room_for_all_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk says of itself is put on: a small one to mount takes rights."""
    left = space_of(tmp_path)._replace(free_bytes=40_000)
    monkeypatch.setattr("hanglab.harness.cli.simulate.space_of", lambda path: left)
    assert main([*JOB, str(tmp_path / "new")]) == 4
    told = " ".join(capsys.readouterr().err.split())
    assert "8 dumps of about" in told and "room for 40.0 kB" in told
    assert list(tmp_path.iterdir()) == []
    # What is advised fits.
    missing = told.partition("--missing ")[2].split()[0]
    assert main([*JOB, str(tmp_path / "new"), "--missing", missing]) == 0
    written = sum(file.stat().st_size for file in (tmp_path / "new").iterdir())
    assert 0 < written <= 40_000
