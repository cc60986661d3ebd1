"""``hanglab new``, and the guide that begins with it, command by command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs_torch

from hanglab.harness.cli import main
from hanglab.harness.scenarios.discovery import read_file

PAGE = Path(__file__).parents[2] / "docs" / "heuristics.md"
CORPUS = Path(__file__).parents[1] / "corpus"


def test_a_new_heuristic_is_judged_as_it_is_and_proposes_nothing_of_sound_jobs(
    tmp_path: Path,
) -> None:
    assert main(["new", "heuristic", "rests_elsewhere", "--out", str(tmp_path)]) == 0
    ours = tmp_path / "ours" / "local"
    ours.mkdir(parents=True)
    for name in ("crash.control", "missing_rank.fault", "process_frozen.fault"):
        for path in (CORPUS / "local").glob(f"{name}.*"):
            (ours / path.name).write_bytes(path.read_bytes())
    out = tmp_path / "out.json"
    command = ["eval", "--corpus", str(ours.parent), "--jobs", "1", "--json", str(out)]
    file = str(tmp_path / "rests_elsewhere.py")
    assert main([*command, "--heuristic", file, "--min-recall", "1"]) == 0
    found = json.loads(out.read_text())
    assert found["failed_heuristics"] == {} and found["comparison"]["changes"] == []
    assert len(found["cases"]) == 3


def test_a_new_scenario_declares_what_it_expects(tmp_path: Path) -> None:
    assert main(["new", "scenario", "left_out", "--out", str(tmp_path)]) == 0
    found = read_file(tmp_path / "left_out.py")
    (scenario,) = found.scenarios
    assert scenario.name == "left_out" and not found.broken
    assert len(scenario.fault_lines) == len(scenario.seen_lines) == 1


@pytest.mark.parametrize("kind", ["heuristic", "scenario"])
@pytest.mark.parametrize("name", ["Crash", "two words", "../up", "class", "", "9lives"])
def test_names_that_are_none_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    assert main(["new", kind, name, "--out", str(tmp_path)]) == 64
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["heuristic", "scenario"])
def test_nothing_is_overwritten(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("kept")
    assert main(["new", kind, "mine", "--out", str(tmp_path)]) == 64
    assert file.read_text() == "kept"
    assert main(["new", kind, "mine", "--out", str(tmp_path / "none")]) == 4


def test_a_cause_that_is_taken_is_refused(tmp_path: Path) -> None:
    assert main(["new", "heuristic", "crash", "--out", str(tmp_path)]) == 64


@needs_torch
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    commands = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(commands) == 6
    # The command of this environment, by whatever name its folder goes.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hanglab").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m hanglab.harness.cli "$@"\n'
    )
    (tmp_path / "bin" / "hanglab").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    work = tmp_path / "work"
    work.mkdir()
    told = []
    for block in commands:
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        told.append(done.stdout)
    assert "missing_rank" in told[0]
    assert "2 Cases, 0 to mend" in told[2]
    changed = next(line for line in told[3].splitlines() if line.rstrip().endswith("better"))
    assert "missing_rank by 1" in changed and "polls_outside by 1" in changed
    assert (work / "report.html").is_file()
