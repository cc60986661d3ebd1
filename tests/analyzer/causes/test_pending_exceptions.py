"""Real jobs whose ranks are in operations while they handle an exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_launcher import run_script

pytestmark = pytest.mark.usefixtures("kept_launcher")

PROGRAM = Path(__file__).with_name("pending_exceptions_program.py")
LINES = PROGRAM.read_text().splitlines()


def verdict_on(folder: Path, size: int, kind: str, culprit: int) -> Any:
    """Verdict on a job of ``size`` ranks."""
    options = ("--world-size", str(size), "--hang-after", "1.5")
    return run_script(folder, *options, str(PROGRAM), "--", kind, str(culprit))[1]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "size", "culprit"),
    [
        ("finally", 4, 1),
        ("same_frame", 3, 2),
        ("context", 4, 0),
        pytest.param("finally", 3, 0, marks=pytest.mark.long),
        pytest.param("same_frame", 4, 1, marks=pytest.mark.long),
        pytest.param("context", 3, 2, marks=pytest.mark.long),
    ],
)
def test_what_a_rank_handles_is_why_it_is_in_another_call(
    tmp_path: Path, kind: str, size: int, culprit: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, culprit)
    assert (verdict["status"], verdict["cause"]) == ("hung", "exception")
    assert verdict["culprits"] == [culprit]
    assert "RAISES" in LINES[verdict["location"]["line"] - 1]
    assert "ValueError: sample 17 is corrupt" in verdict["summary"]


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "size", "culprit"), [("everybody", 3, 0), ("one_alone", 4, 2)])
def test_what_is_handled_soundly_explains_nothing(
    tmp_path: Path, kind: str, size: int, culprit: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, culprit)
    assert (verdict["cause"], verdict["culprits"]) == ("skipped_collective", [culprit])


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "size"), [("finally", 3), ("same_frame", 4), ("one_alone", 3)])
def test_who_handles_nothing_or_soundly_is_healthy(tmp_path: Path, kind: str, size: int) -> None:
    assert verdict_on(tmp_path, size, kind, -1)["status"] == "healthy"
