"""Real jobs of which one rank does not keep the Work of its sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_launcher import run_script

pytestmark = pytest.mark.usefixtures("kept_launcher")

PROGRAM = Path(__file__).with_name("dropped_sends_program.py")
LINES = PROGRAM.read_text().splitlines()


def verdict_on(folder: Path, size: int, sender: int, keeps: int, tags: int = 0) -> Any:
    """Verdict on a job of ``size`` ranks."""
    options = ("--world-size", str(size), "--hang-after", "1.5")
    return run_script(folder, *options, str(PROGRAM), "--", str(sender), str(keeps), str(tags))[1]


@pytest.mark.parametrize(("size", "sender", "tags"), [(3, 0, 1), (4, 2, 0)])
def test_a_send_that_nobody_holds_is_its_senders_fault(
    tmp_path: Path, size: int, sender: int, tags: int
) -> None:
    verdict = verdict_on(tmp_path, size, sender, 0, tags)
    assert (verdict["status"], verdict["cause"]) == ("hung", "p2p_unmatched")
    assert verdict["culprits"] == [sender]
    assert "DROPS" in LINES[verdict["location"]["line"] - 1]
    assert verdict["advice"].startswith("Keep what isend returns")


def test_a_send_that_is_kept_arrives(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, 3, 1, keeps=1)["status"] == "healthy"
