"""``hanglab mutate`` with real jobs on gloo, as its users call it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conditions import wait_for
from installed import needs_torch

from hanglab.harness.cli import main
from hanglab.harness.evaluation.suite.declaration import read_suite
from hanglab.harness.scenarios.discovery import read_file

pytestmark = [
    needs_torch,
    pytest.mark.usefixtures("kept_launcher"),
]

PROGRAMS = Path(__file__).parent / "programs"
SCRIPT = PROGRAMS / "averaging_program.py"
FAST = ("--hang-after", "1.5", "--world-size", "3")


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Exit code and folder of one run: two operators of the project, three of a user."""
    folder = tmp_path_factory.mktemp("mutate")
    operators = f"collective_left_out,stopped,{PROGRAMS / 'wrong_operators.py'}"
    words = ["--operators", operators, "--limit", "5", "--out", str(folder / "out")]
    code = main(["mutate", str(SCRIPT), *FAST, *words, "--as-suite", str(folder / "suite")])
    yield code, folder


def by_operator(folder: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((folder / "out" / "report.json").read_text())
    return {one["operator"]: one for one in report["mutants"]}


@pytest.mark.slow
def test_what_was_broken_is_found_and_what_the_operator_knows_is_the_measure(
    tested: tuple[int, Path],
) -> None:
    code, folder = tested
    mutants = by_operator(folder)
    skip = mutants["collective_left_out"]
    assert (skip["fate"], skip["end"]) == ("found", "hangs"), skip
    assert skip["verdict"].startswith("hung: skipped_collective by rank")
    assert mutants["stopped"]["fate"] == "found", mutants["stopped"]
    # Its operator is wrong, and so the verdict that is right is a miss that accuses an innocent.
    blamed = mutants["blames_an_innocent"]
    assert (blamed["fate"], blamed["accused"]) == ("missed", [1]), blamed
    assert blamed["cause_right"] and not blamed["rank_right"]
    assert code == 1


def test_what_did_not_strike_and_what_did_no_harm_are_told_apart(tested: tuple[int, Path]) -> None:
    mutants = by_operator(tested[1])
    assert mutants["never_strikes"]["fate"] == "not struck"
    assert (mutants["harmless"]["fate"], mutants["harmless"]["end"]) == ("silent", "ends well")
    total = json.loads((tested[1] / "out" / "report.json").read_text())["total"]
    assert (total["mutants"], total["struck"], total["silent"]) == (5, 4, 1)


def test_a_miss_is_left_as_a_scenario(tested: tuple[int, Path]) -> None:
    (file,) = (tested[1] / "out" / "misses").glob("*_scenario.py")
    found = read_file(file)
    assert not found.broken
    (scenario,) = found.scenarios
    assert scenario.expect is not None and scenario.expect.culprits == frozenset({2})
    assert scenario.world_size == 3 and scenario.fault_lines and scenario.seen_lines
    beside = {path.name for path in file.parent.iterdir()}
    assert {scenario.program.name, "mutation_point.py", "mutation_values.py"} <= beside


@pytest.mark.long
def test_the_scenario_of_a_miss_runs_and_its_control_is_healthy(
    tested: tuple[int, Path], tmp_path: Path
) -> None:
    (file,) = (tested[1] / "out" / "misses").glob("*_scenario.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["run", str(file)]) == 1
    (results,) = tmp_path.glob("runs/latest/results.json")
    outcomes = {r["variant"]: r["outcome"] for r in json.loads(results.read_text())["results"]}
    assert outcomes == {"fault": "wrong verdict", "control": "pass"}


def test_a_suite_has_the_original_and_what_struck_with_what_could_be_seen(
    tested: tuple[int, Path],
) -> None:
    folder = tested[1] / "suite"
    scripts = json.loads((folder / "suite.json").read_text())["scripts"]
    keys = {"file", "ranks", "label", "class", "culprits", "lines", "observable"}
    assert all(set(one) == keys and (folder / one["file"]).exists() for one in scripts)
    seen = [(one["label"], one["class"], one["observable"]) for one in scripts]
    assert seen[0] == ("ok", None, "fine")
    assert ("error", "process_frozen", "hangs") in seen and ("error", "exception", "fine") in seen
    assert len(scripts) == 5


@pytest.fixture(scope="module")
def on_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on the emulated device, of a script that names NCCL."""
    folder = tmp_path_factory.mktemp("device")
    script = folder / "train.py"
    script.write_text(SCRIPT.read_text().replace('"gloo"', '"nccl"'))
    shutil.copy(PROGRAMS / "averaging_settings.py", folder)
    operators = f"collective_left_out,other_size,{PROGRAMS / 'wrong_operators.py'}"
    words = ["--operators", operators, "--limit", "5", "--out", str(folder / "out")]
    words += ["--backend", "nccl-emulated", "--as-suite", str(folder / "suite")]
    assert main(["mutate", str(script), *FAST, *words]) == 1
    return folder


def test_mutants_run_on_the_emulated_device_and_are_judged_by_its_semantics(
    on_device: Path,
) -> None:
    mutants = by_operator(on_device)
    # Its host went on from the call that it made too early: that line is right, too.
    skip = mutants["collective_left_out"]
    assert (skip["fate"], skip["line_right"]) == ("found", True), skip
    # On gloo ranks end with an error.
    size = mutants["other_size"]
    assert (size["fate"], size["end"]) == ("found", "hangs"), size
    report = json.loads((on_device / "out" / "report.json").read_text())
    assert report["backend"] == "nccl-emulated"
    assert "The device was emulated on the CPU" in (on_device / "out" / "report.md").read_text()
    suite = read_suite(on_device / "suite")
    assert suite.runs_on(None) == "nccl-emulated"
    assert {one.observable for one in suite.scripts} >= {"fine", "hangs"}
    (file,) = (on_device / "out" / "misses").glob("*_scenario.py")
    (scenario,) = read_file(file).scenarios
    assert scenario.backends == ("nccl-emulated",)


def test_a_script_that_names_another_backend_is_not_run_on_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--backend", "nccl-emulated", "--out", str(tmp_path / "out")]
    assert main(["mutate", str(SCRIPT), *FAST, *words]) == 3
    told = capsys.readouterr().err
    assert "averaging_program.py makes no group on nccl-emulated" in told
    assert main(["mutate", str(SCRIPT), "--backend", "gloo,nccl"]) == 64
    assert "one backend, and not on gloo and nccl" in capsys.readouterr().err
    assert main(["mutate", str(SCRIPT), "--backend", "nccl-emulate"]) == 64
    assert "Did you mean nccl-emulated?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no data here')", "fails as it is, without any mutation: rank 0 said "),
        pytest.param(
            "import torch.distributed as d; d.init_process_group('gloo')\n"
            "if d.get_rank(): d.barrier()\n"
            "else: __import__('time').sleep(60)",
            "does not end as it is",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_script_that_does_not_run_is_said_so_in_one_sentence(
    body: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{body}\n")
    words = ["--hang-after", "1", "--world-size", "2", "--out", str(tmp_path / "out")]
    assert main(["mutate", str(script), *words]) == 3
    told = capsys.readouterr().err
    assert f"hanglab: train.py {said}" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Which script?"),
        (["nowhere.py"], "nowhere.py cannot be read: No such file or directory."),
        ([str(SCRIPT), "--operators", "skip"], "There is no operator 'skip'."),
        ([str(SCRIPT), "--operators", "mine.py"], "There is no file mine.py."),
        ([str(SCRIPT), "--operators", ","], "--operators names none."),
        ([str(SCRIPT), "--operators", str(PROGRAMS / "averaging_settings.py")], "has neither"),
        ([str(SCRIPT), "--out", str(PROGRAMS)], "is not empty"),
        ([str(SCRIPT), "--as-suite", str(SCRIPT)], "is no folder"),
        ([str(SCRIPT), "--world-size", "1"], "world-size"),
        ([str(SCRIPT), "--hang-after", "nan"], "nan"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["mutate", *words])
    assert said in capsys.readouterr().err
    assert code == 64
    assert not list(tmp_path.iterdir())


def test_operators_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutate", "--list-operators"]) == 0
    assert "collective_left_out" in capsys.readouterr().out


@pytest.mark.long
def test_an_interrupt_keeps_what_was_judged_before_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["mutate", str(SCRIPT), *FAST, "--limit", "30", "--out", str(out)]
    command = subprocess.Popen(
        [sys.executable, "-m", "hanglab.harness.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    kept = out / "judgements.jsonl"
    wait_for(kept.exists, "the first judgement")
    command.send_signal(signal.SIGINT)
    told, _ = command.communicate(timeout=280)
    assert command.returncode == 130, told
    assert f"hanglab: interrupted; {out} holds what had been found" in told
    report = json.loads((out / "report.json").read_text())
    assert report["interrupted"] and 0 < report["total"]["mutants"] < 30
    assert report["total"]["mutants"] == len(kept.read_text().splitlines())
    assert report["total"]["errors"] == 0
