"""Real jobs of which one rank has a batch more than the others, or one fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_launcher import run_script

pytestmark = pytest.mark.usefixtures("kept_launcher")

PROGRAM = Path(__file__).with_name("uneven_inputs_program.py")


#: Seconds after which a job hangs: one that ends by itself gets those of a crowded machine.
HANGS_AFTER = {"hung": "1.5", "failed": "60", "healthy": "60"}


def verdict_on(folder: Path, size: int, kind: str, odd: int, status: str) -> Any:
    """Verdict on a job of ``size`` ranks."""
    options = ("--world-size", str(size), "--hang-after", HANGS_AFTER[status])
    return run_script(folder, *options, str(PROGRAM), "--", kind, str(odd))[1]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kind", "size", "odd", "status"),
    [
        ("loader", 4, 0, "failed"),
        ("epochs", 4, 1, "failed"),
        ("counted", 3, 2, "hung"),
        ("shards", 4, 2, "failed"),
        ("sampled", 4, 1, "hung"),
        ("iterator", 3, 1, "hung"),
        ("later_epoch", 3, 2, "hung"),
        pytest.param("loader", 3, 1, "failed", marks=pytest.mark.long),
        pytest.param("counted", 4, 0, "hung", marks=pytest.mark.long),
    ],
)
def test_the_rank_of_another_number_of_batches_is_named(
    tmp_path: Path, kind: str, size: int, odd: int, status: str
) -> None:
    verdict = verdict_on(tmp_path, size, kind, odd, status)
    assert (verdict["status"], verdict["cause"]) == (status, "uneven_inputs")
    assert verdict["culprits"] == [odd]
    assert "drop_last" in verdict["advice"] and "join()" in verdict["advice"]


@pytest.mark.parametrize(("kind", "size", "odd"), [("extra_call", 3, 1), ("goes_on", 4, 2)])
def test_as_many_rounds_on_every_rank_are_no_input(
    tmp_path: Path, kind: str, size: int, odd: int
) -> None:
    verdict = verdict_on(tmp_path, size, kind, odd, "hung")
    assert (verdict["cause"], verdict["culprits"]) == ("collective_mismatch", [odd])


@pytest.mark.parametrize(("kind", "size"), [("epochs", 3), ("iterator", 3)])
def test_as_many_batches_on_every_rank_are_healthy(tmp_path: Path, kind: str, size: int) -> None:
    assert verdict_on(tmp_path, size, kind, -1, "healthy")["status"] == "healthy"
