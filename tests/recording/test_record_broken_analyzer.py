"""``hanglab record`` where the analyzer cannot be had: the Case and the job's own code stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECORD = """
import sys
{broken}
from hanglab.harness.cli import main
sys.exit(main(["record", "--out", {case!r}, "--", "sh", "-c", "exit 7"]))
"""
RAISING = """
import hanglab.analyzer.engine as engine
def examine(path):
    raise ZeroDivisionError("none of them")
engine.examine = examine
"""


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("sys.modules['hanglab.analyzer.engine'] = None", "ModuleNotFoundError"),
        (RAISING, "ZeroDivisionError: none of them"),
    ],
)
def test_the_case_is_kept_and_told_of(tmp_path: Path, broken: str, words: str) -> None:
    case = tmp_path / "case"
    program = RECORD.format(broken=broken, case=str(case))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 7, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert f"the Case is {case}" in done.stderr
    assert (case / "manifest.json").is_file()
