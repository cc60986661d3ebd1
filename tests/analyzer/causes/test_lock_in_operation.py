"""Real jobs of which a thread holds a lock within an operation, and another one wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_launcher import run_script

pytestmark = pytest.mark.usefixtures("kept_launcher")

PROGRAM = Path(__file__).with_name("lock_in_operation_program.py")
LINES = PROGRAM.read_text().splitlines()


def verdict_on(folder: Path, size: int, odd: int) -> Any:
    """Verdict on a job of ``size`` ranks."""
    options = ("--world-size", str(size), "--hang-after", "1.5")
    return run_script(folder, *options, str(PROGRAM), "--", str(odd))[1]


@pytest.mark.parametrize(("size", "odd"), [(3, 1), (4, 0)])
def test_who_holds_the_lock_over_an_operation_is_named(tmp_path: Path, size: int, odd: int) -> None:
    verdict = verdict_on(tmp_path, size, odd)
    assert (verdict["status"], verdict["cause"]) == ("hung", "python_deadlock")
    assert verdict["culprits"] == [odd]
    assert "HOLDS" in LINES[verdict["location"]["line"] - 1]


def test_threads_that_let_each_other_go_on_are_healthy(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, 3, -1)["status"] == "healthy"
