"""The table of behaviours: its tests are there, and its column says what a GPU has confirmed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.nccl_behaviours import KEPT, PAGE, confirmed, with_column

_HERE = Path(__file__).parent


def test_the_column_is_what_the_runs_on_nccl_gave() -> None:
    page = PAGE.read_text()
    kept = json.loads(KEPT.read_text())
    assert page == with_column(page, kept), "run python -m tools.nccl_behaviours"
    assert (" | yes (" in page or " | differs (" in page) is bool(kept.get("tests"))


def test_the_tests_that_the_table_names_are_there() -> None:
    source = "".join(path.read_text() for path in _HERE.glob("test_*.py"))
    there = re.findall(r"^def (test_\w+)", source, re.MULTILINE)
    named = re.findall(r"\| `(test_[^`|]*)`", PAGE.read_text())
    assert len(named) >= 20
    for name in named:
        begin = re.split(r"\.\.\.|\[", name)[0]
        assert any(one.startswith(begin) for one in there), name


@pytest.mark.parametrize(
    ("tests", "column"),
    [
        ("`test_a`", "yes (one GPU)"),
        ("`test_b_...[two]`", "yes (one GPU)"),
        ("`test_b_and_more`", "differs (one GPU)"),
        ("`test_a`, `test_b_...`", "differs (one GPU)"),
        ("`test_c`", "no"),
        ("scenario `host_sync`", "no"),
    ],
)
def test_a_row_is_confirmed_by_all_of_its_tests_that_ran(tests: str, column: str) -> None:
    outcomes = {
        "device": "one GPU",
        "tests": {
            "test_a": "passed", "test_b_and_more[one]": "failed", "test_b_and_more[two]": "passed",
        },
    }  # fmt: skip
    assert confirmed(tests, outcomes) == column
    row = f"| what | source | {tests} | no |\n"
    assert with_column(row, outcomes) == row.replace("| no |", f"| {column} |")
