"""``hanglab history``: pass rates over runs, what needs attention first, what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stored_results import job, write_run

from hanglab.harness.cli import main


@pytest.fixture
def nights(tmp_path: Path) -> list[Path]:
    """Ten runs: one scenario is sound, one flaky, one broken since the sixth, one always."""
    folders = []
    for night in range(10):
        jobs = [
            job("sound"),
            job("flaky", "pass" if night % 3 else "not reproduced"),
            job("broken", "pass" if night < 6 else "wrong verdict", code=f"{night // 6}" * 16),
            job("never", "harness error"),
            job("never", variant="control"),
            job("off", "skipped"),
            job("script", expected=None),
            job("cut", "harness error", reason="interrupted"),
        ]
        folders.append(write_run(tmp_path / f"night{night}", jobs, hour=24 * night))
    return folders


def rows(capsys: pytest.CaptureFixture[str], *given: object) -> dict[tuple[str, str], Any]:
    assert main(["history", *map(str, given), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "hanglab.history/1"
    return {(row["scenario"], row["variant"]): row for row in found["scenarios"]}


def test_states_come_in_the_order_of_the_attention_they_need(
    nights: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    # In any order: runs are sorted by when they began.
    found = rows(capsys, *reversed(nights))
    assert [(name, row["judged"]["state"]) for (name, _), row in found.items()] == [
        ("never", "always fails"),
        ("broken", "changed, fails since"),
        ("flaky", "flaky"),
        ("never", "no failures"),
        ("sound", "no failures"),
    ]
    broken = found["broken", "fault"]
    assert broken["passed"] == pytest.approx(
        {"count": 6, "of": 10, "share": 0.6, "low": 0.3127, "high": 0.8318}, abs=1e-4
    )
    assert broken["judged"]["since"]["folder"] == str(nights[6])
    assert broken["judged"]["code_changed"] is True
    assert (broken["trail"], broken["trend"]) == ("......FFFF", "falling")
    assert broken["first_failure"]["run"]["folder"] == str(nights[6])
    assert broken["latest_failure"]["run"]["folder"] == str(nights[9])
    assert found["flaky", "fault"]["trail"] == "F..F..F..F"
    assert found["flaky", "fault"]["latest_failure"]["outcome"] == "not reproduced"


def test_the_table_shows_failures_alone_unless_all_is_asked_for(
    nights: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["history", *map(str, nights)]
    assert main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "sound" not in told
    assert "1 always fails, 1 changed, fails since, 1 flaky, 2 no failures." in told
    assert "30 jobs say nothing" in told
    assert main([*words, "--all", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("| broken")]
    assert "changed, fails since run 7, with other code" in line
    assert "| 10 | 10 | 6 | 60 % (31-83) | ......FFFF falling |" in line
    assert "| run 7, wrong verdict | run 10, wrong verdict |" in line
    assert any(line.startswith("| sound") for line in lines)
    assert f"| 4 | 2026-11-04 00:00:00 | 0.1.0 | 2.13.0 | {nights[3]} |" in lines


def test_circumstances_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        job("a", "pass" if ranks == 2 else "wrong verdict", world_size=ranks, repetition=repetition)
        for ranks in (2, 4)
        for repetition in range(5)
    ]
    run = write_run(tmp_path / "1", jobs)
    assert main(["history", str(run), "--all", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert "| a | fault | gloo, local, 4 ranks | always fails | 1 | 5 | 0 |" in out
    assert "| a | fault | gloo, local, 2 ranks | no failures | 1 | 5 | 5 |" in out


def test_a_merged_run_counts_as_its_parts_and_not_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = [write_run(tmp_path / name, [job(name)], hour=3) for name in "ab"]
    whole = tmp_path / "whole"
    assert main(["merge", *map(str, shards), "-o", str(whole)]) == 0
    capsys.readouterr()
    # By its own path and by a link it is one.
    (tmp_path / "latest").symlink_to("whole")
    assert len(rows(capsys, whole, tmp_path / "latest")) == 2
    assert main(["history", str(whole), str(shards[0])]) == 64
    assert "have the same jobs" in capsys.readouterr().err


def test_other_versions_are_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        write_run(tmp_path / str(number), [job("a", outcome)], hour=number, hanglab=f"0.{number}")
        for number, outcome in enumerate(["pass", "wrong verdict"] * 4)
    ]
    row = rows(capsys, *runs)["a", "fault"]
    # Both outcomes, and never under one version.
    assert row["judged"]["state"] == "too few runs to tell"


@pytest.mark.parametrize(
    "more, told",
    [
        ({"started": None}, "does not tell when its run began"),
        ({"started": "2026-11-01T00:00:00"}, "cannot be read"),
        ({"schema": "hanglab.run/2"}, "not hanglab.run/1"),
    ],
)
def test_runs_that_cannot_be_ordered_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], told: str
) -> None:
    run = write_run(tmp_path / "1", [job("a")], **more)
    assert main(["history", str(run)]) == 4
    assert told in capsys.readouterr().err


def test_a_run_of_nothing_has_an_empty_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "1", [])
    assert main(["history", str(run)]) == 0
    assert "No job of a scenario was judged" in capsys.readouterr().out
    assert main(["history", str(run), "--json", "--markdown"]) == 64
