"""Real jobs of which one rank waits for what a worker process of its own was to write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kept_launcher import run_script

pytestmark = pytest.mark.usefixtures("kept_launcher")

PROGRAM = Path(__file__).with_name("worker_waits_program.py")


def verdict_on(folder: Path, size: int, kind: str, waiter: int, fault: str) -> Any:
    """Verdict on a job of ``size`` ranks."""
    options = ("--world-size", str(size), "--hang-after", "1.5")
    return run_script(folder, *options, str(PROGRAM), "--", kind, str(waiter), fault)[1]


@pytest.mark.parametrize(
    ("kind", "size", "waiter"),
    [
        ("queue", 3, 1),
        pytest.param("pipe", 4, 2, marks=pytest.mark.long),
        pytest.param("feeder", 2, 0, marks=pytest.mark.long),
    ],
)
def test_the_worker_that_rests_is_named_with_its_line(
    tmp_path: Path, kind: str, size: int, waiter: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, waiter, "rests")
    assert (verdict["status"], verdict["cause"]) == ("hung", "missing_rank")
    assert verdict["culprits"] == [waiter]
    line = next(n for n, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "RESTS" in text)
    told = rf"of its process \S+ \(pid \d+\), which is at {PROGRAM.name}:{line} \(produce\)"
    assert re.search(told, verdict["summary"])


@pytest.mark.parametrize(
    ("kind", "size", "waiter"),
    [("pipe", 3, 0), pytest.param("queue", 4, 2, marks=pytest.mark.long)],
)
def test_the_worker_that_died_is_named_with_its_end(
    tmp_path: Path, kind: str, size: int, waiter: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, waiter, "dies")
    assert (verdict["status"], verdict["culprits"]) == ("hung", [waiter])
    assert "whose other end no other process has; its process" in verdict["summary"]
    assert re.search(r"\(pid \d+\) ended with signal 9", verdict["summary"])


def test_workers_that_deliver_are_healthy(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, 3, "queue", 1, "none")["status"] == "healthy"
