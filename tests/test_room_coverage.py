"""The table that `make coverage` ends with, of a report that coverage itself wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.room_coverage import by_room, table

# Chosen so that one of two branches runs in one room, and none in the other.
_SOURCES = {
    "run.py": "import recorder.case.one\n",
    "recorder/__init__.py": "",
    "recorder/case/__init__.py": "",
    "recorder/case/one.py": "number = 1\nif number:\n    number = 2\n",
    "recorder/rank/__init__.py": "",
    "recorder/rank/other.py": "number = 1\nif number:\n    number = 2\n",
    "scenarios/__init__.py": "",
    "scenarios/straggler/__init__.py": "",
    "scenarios/straggler/burst.py": "number = 1\n",
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    for name, text in _SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # None of what this run of pytest is measured with, if it is.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")
    }
    source = "--source=recorder,scenarios"
    for arguments in (["run", "--branch", source, "run.py"], ["json", "--quiet", "-o", "out.json"]):
        command = [sys.executable, "-m", "coverage", *arguments]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=280)
    return tmp_path / "out.json"


def test_each_room_has_its_own_share_of_branches(report: Path, tmp_path: Path) -> None:
    rooms = by_room(report, tmp_path)
    shares = {name: (room.branches_run, room.branches) for name, room in rooms.items()}
    assert shares == {
        "recorder": (1, 4),
        "recorder/case": (1, 2),
        "recorder/rank": (0, 2),
        "scenarios": (0, 0),
        "all": (1, 4),
    }
    assert rooms["recorder/rank"].statements == 3 and rooms["recorder/rank"].statements_run == 0


def test_a_room_of_one_report_alone_keeps_its_row(report: Path, tmp_path: Path) -> None:
    now = by_room(report, tmp_path)
    earlier = {"all": now["all"], "recorder": now["recorder"], "recorder/scores": now["all"]}
    rows = {line.split("|")[1].strip(): line for line in table(now, earlier).splitlines()[2:]}
    assert rows["recorder/case"] == "| recorder/case | - | 50.0 | 2 | 3 |"
    assert rows["recorder/scores"] == "| recorder/scores | 25.0 | - | 0 | 0 |"
    assert list(rows)[-1] == "all"
