"""Suites that others label: declarations, measures, export, and a suite that is run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conditions import wait_for
from installed import needs_torch

from hanglab.harness.cli import main
from hanglab.harness.evaluation.answers import Accusation, CaseAnswer
from hanglab.harness.evaluation.measures import rate
from hanglab.harness.evaluation.suite.declaration import (
    LabelledScript,
    LabelledSuite,
    SuiteError,
    read_suite,
)
from hanglab.harness.evaluation.suite.measures import measure_suite, score_suite
from hanglab.harness.evaluation.suite.running import ScriptRun

pytestmark = pytest.mark.usefixtures("kept_launcher")

#: Says of each rank that failed that it had no memory left.
OWN = """
from hanglab.analyzer.proposal import propose
from hanglab.analyzer.verdict import Cause

def own(facts):
    failed = [rank for rank, view in facts.ranks.items() if view.failed]
    if failed:
        yield propose(facts, Cause.OOM_KILLED, failed, confidence=1.0, summary="So.",
                      failure_on_record=True)
"""
FAULTY: dict[str, Any] = {
    "file": "a.py",
    "ranks": 4,
    "label": "error",
    "class": "skipped_collective",
    "culprits": [1],
    "lines": [9],
    "observable": "hangs",
}


def write_suite(folder: Path, *scripts: dict[str, Any], **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for script in scripts:
        (folder / str(script["file"])).write_text("print('nothing')\n")
    (folder / "suite.json").write_text(json.dumps({"scripts": list(scripts), **more}))
    return folder


def test_a_suite_is_read_with_its_classes(tmp_path: Path) -> None:
    suite = read_suite(write_suite(tmp_path, FAULTY, classes={"ordering": ["group_order"]}))
    (script,) = suite.scripts
    assert (script.kind, script.culprits, script.name) == ("skipped_collective", [1], "a")
    assert suite.causes("ordering") == {"group_order"}
    assert suite.causes("skipped_collective") == {"skipped_collective"}
    assert {"partition", "slow_link"} <= suite.causes("network")
    assert suite.causes("CallOrdering") == frozenset()


def test_wrong_numbers_may_be_written_in_words(tmp_path: Path) -> None:
    (script,) = read_suite(
        write_suite(tmp_path, {**FAULTY, "observable": "silently wrong"})
    ).scripts
    assert script.observable == "silently_wrong"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranks": 0}, "runs with 1 to"),
        ({"label": "ok"}, "labelled ok, and yet hangs"),
        ({"observable": "explodes"}, "explodes"),
        ({"culprits": [4]}, "none of its 4 ranks"),
        ({"culprit": [1]}, "culprit"),
        ({"file": "../a.py"}, "not below"),
        ({"hang_after": 0.0}, "hang_after"),
    ],
)
def test_what_cannot_be_a_suite_is_refused_in_a_sentence(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write_suite(tmp_path / "suite", {**FAULTY, **change})
    with pytest.raises(SuiteError, match=words):
        read_suite(tmp_path / "suite")
    assert main(["eval", "--suite", str(tmp_path / "suite")]) == 4


def test_scripts_that_are_missing_named_twice_or_none_are_refused(tmp_path: Path) -> None:
    folder = write_suite(tmp_path, FAULTY)
    (folder / "a.py").unlink()
    with pytest.raises(SuiteError, match="does not exist"):
        read_suite(folder)
    with pytest.raises(SuiteError, match="is named twice"):
        read_suite(write_suite(folder, FAULTY, FAULTY))
    with pytest.raises(SuiteError, match="names no script"):
        read_suite(write_suite(folder))
    with pytest.raises(SuiteError, match="cannot be read"):
        read_suite(tmp_path / "elsewhere")
    assert main(["eval", "--suite", str(folder), "--simulated", "3"]) == 64


def script(file: str, observable: Any = "hangs", **more: Any) -> LabelledScript:
    label: Any = "ok" if observable == "fine" else "error"
    return LabelledScript(file=file, ranks=4, label=label, observable=observable, **more)


def said(
    cause: str | None, *culprits: int, beside: Sequence[str] = (), **more: Any
) -> list[ScriptRun]:
    status = "healthy" if cause is None else "hung"
    findings = [Accusation("hung", cause, list(culprits), 0.9)] if cause else []
    findings += [Accusation("corrupt", other, [0], 0.9) for other in beside]
    answer = CaseAnswer(
        status=status, cause=cause, culprits=list(culprits), findings=findings, **more
    )
    return [ScriptRun(answer=answer, observed="hangs" if cause else "fine")]


def test_measures_by_hand() -> None:
    skip: dict[str, Any] = {"kind": "skipped_collective", "culprits": [1], "lines": [9]}
    suite = LabelledSuite(
        scripts=[
            script("right.py", **skip),
            script("noisy.py", **skip),
            script("wrong.py", **skip),
            script("missed.py", **skip),
            script("unsure.py", **skip),
            script("sound.py", "fine"),
            script("alarm.py", "fine"),
            script("broken.py", "fails", **skip),
            script("foreign.py", kind="CallOrdering"),
        ]
    )
    right = said("skipped_collective", 1, file="/x/right.py", line=9)
    runs = {
        "right.py": [*right, *right, *said("missing_rank", 1)],
        "noisy.py": said("skipped_collective", 1, beside=["reduction_mismatch"], line=9),
        "wrong.py": said("missing_rank", 2, file="wrong.py", line=8),
        "missed.py": said(None),
        "unsure.py": [ScriptRun(answer=CaseAnswer(status="inconclusive"), observed="hangs")],
        "sound.py": [*said(None), *said(None)],
        "alarm.py": said("crash", 3),
        "broken.py": [ScriptRun(answer=None, problem="no port")],
        "foreign.py": said("group_order", 0),
    }
    scores = {one.script.file: one for one in score_suite(suite, runs)}
    found = measure_suite(list(scores.values()))
    assert (found.scripts, found.unanswered) == (9, 1)
    assert found.recall == rate(4, 6) and found.decided_recall == rate(4, 5)
    assert found.precision == rate(4, 5) and found.specificity == rate(1, 2)
    assert found.f1 == pytest.approx(2 * (4 / 5) * (4 / 6) / (4 / 5 + 4 / 6))
    assert found.inconclusive == rate(1, 8)
    # The class of another tool, of which nothing says what it means here, is not judged.
    assert found.class_agreement == rate(2, 3) and found.culprits == rate(2, 3)
    assert found.line == rate(1, 3)
    assert (found.noise, found.right_findings) == (1, 2)
    assert found.nondeterminism == rate(1, 2) and scores["right.py"].varies
    assert scores["noisy.py"].innocents == [0] and scores["alarm.py"].innocents == [3]
    assert scores["foreign.py"].innocents == [] and scores["missed.py"].otherwise
    assert not scores["right.py"].otherwise


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "suite"
    assert main(["list", "--as-suite", str(folder)]) == 0
    return folder


def test_scenarios_become_scripts_without_hanglab_and_with_their_lines(exported: Path) -> None:
    suite = read_suite(exported)
    by_file = {one.file: one for one in suite.scripts}
    assert len(by_file) >= 30 and len(by_file) % 2 == 0
    for file, one in by_file.items():
        text = (exported / file).read_text()
        compile(text, file, "exec")
        assert "import hanglab" not in text and "from hanglab" not in text
        assert "@scenario" not in text
        for line in one.lines or ():
            marked = text.splitlines()[line - 1]
            assert "# SEEN" in marked or "# FAULT" in marked, (file, line)
        other = file.replace("_fault", "_control")
        assert by_file[other].label == "ok" and by_file[other].observable == "fine"
    assert by_file["any_source_knot_fault.py"].culprits == [0, 1, 2, 3]
    assert by_file["reduction_mismatch_fault.py"].observable == "silently_wrong"
    assert by_file["size_mismatch_fault.py"].observable == "fails"
    assert "device_guessed_fault.py" not in by_file  # it needs two GPUs


def test_an_export_overwrites_nothing(exported: Path, tmp_path: Path) -> None:
    assert main(["list", "--as-suite", str(exported)]) == 64
    assert main(["list", "process_frozen", "--as-suite", str(tmp_path / "new")]) == 64
    assert not (tmp_path / "new").exists()


@needs_torch
def test_a_suite_is_run_judged_and_bounded(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = json.loads((exported / "suite.json").read_text())
    kept = [one for one in suite["scripts"] if one["file"].startswith("skipped_collective")]
    fails = {"file": "fails.py", "ranks": 1, "label": "error", "class": "exception"}
    folder = tmp_path / "suite"
    write_suite(folder, *kept, {**fails, "observable": "fails", "lines": [2]})
    for one in kept:
        (folder / one["file"]).write_text((exported / one["file"]).read_text())
    (folder / "fails.py").write_text("def f():\n    raise ValueError('no')\n\nf()\n")
    out = tmp_path / "out.json"
    (tmp_path / "own.py").write_text(OWN)
    command = ["eval", "--suite", str(folder), "--jobs", "2", "--json", str(out)]
    command += ["--heuristic", "own.py"]
    assert main([*command, "--min-recall", "1", "--max-innocent", "0"]) == 0
    found = json.loads(out.read_text())
    measures = found["measures"]
    assert (measures["recall"]["count"], measures["specificity"]["count"]) == (2, 1)
    # Of the one that fails, the heuristic says something else.
    assert measures["class_agreement"]["count"] == measures["line"]["count"] == 1
    causes = {one["script"]["file"]: one["answer"].get("cause") for one in found["scripts"]}
    assert causes["fails.py"] == "oom_killed"
    assert {one["script"]["file"]: one["runs"][0]["observed"] for one in found["scripts"]} == {
        "skipped_collective_fault.py": "hangs",
        "skipped_collective_control.py": "fine",
        "fails.py": "fails",
    }


def test_labels_are_for_a_backend_and_run_on_what_behaves_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_suite(write_suite(tmp_path / "any", FAULTY)).runs_on(None) == "gloo"
    for own, asked, runs in (
        ("nccl", "nccl-emulated", "nccl-emulated"),
        ("nccl-emulated", None, "nccl-emulated"),
        ("gloo", "gloo", "gloo"),
    ):
        suite = read_suite(write_suite(tmp_path / "suite", FAULTY, backend=own))
        assert suite.runs_on(asked) == runs
    folder = write_suite(tmp_path / "suite", FAULTY, backend="nccl")
    assert main(["eval", "--suite", str(folder), "--backend", "gloo"]) == 64
    told = capsys.readouterr().err
    assert "labels are for nccl, and not for gloo" in told and "nccl or nccl-emulated" in told
    with pytest.raises(SuiteError, match="mpi"):
        read_suite(write_suite(tmp_path / "other", FAULTY, backend="mpi"))
    assert main(["eval", "--simulated", "1", "--backend", "gloo"]) == 64
    assert main(["list", "--backend", "gloo"]) == 64


@pytest.mark.slow
@needs_torch
def test_scenarios_for_nccl_become_plain_scripts_that_run_on_the_emulated_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["size_mismatch_hangs", "crossed_on_device"]  # one makes its groups itself
    assert main(["list", *names, "--as-suite", "suite", "--backend", "nccl-emulated"]) == 0
    suite = read_suite(tmp_path / "suite")
    assert len(suite.scripts) == 4
    for one in suite.scripts:
        text = (tmp_path / "suite" / one.file).read_text()
        assert "hanglab" not in text and text.count('dist.init_process_group("nccl"') == 1
    assert main(["eval", "--suite", "suite", "--jobs", "2", "--json", "out.json"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["backend"] == "nccl-emulated"
    assert all(run["emulated"] for one in found["scripts"] for run in one["runs"])
    measures = found["measures"]
    assert measures["class_agreement"]["count"] == measures["culprits"]["count"] == 2
    assert measures["specificity"]["count"] == 2
    assert "the device was emulated on the CPU" in capsys.readouterr().out


@needs_torch
@pytest.mark.long
def test_an_exported_control_runs_under_torchrun_alone(exported: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"]
    for name in ("skipped_collective", "uneven_inputs", "any_source_knot"):
        program = exported / f"{name}_control.py"
        done = subprocess.run([*command, str(program)], cwd=tmp_path, timeout=280, check=False)
        assert done.returncode == 0, name


@needs_torch
@pytest.mark.long
def test_ctrl_c_keeps_the_scripts_that_were_judged(tmp_path: Path) -> None:
    sound = {"file": "a.py", "ranks": 2, "label": "ok", "observable": "fine"}
    folder = write_suite(tmp_path / "suite", sound, {**FAULTY, "file": "b.py", "ranks": 2})
    group = "import time\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
    (folder / "a.py").write_text(f"{group}dist.barrier()\ndist.destroy_process_group()\n")
    (folder / "b.py").write_text(f"{group}print('stands', flush=True)\ntime.sleep(300)\n")
    command = [sys.executable, "-m", "hanglab.harness.cli", "eval", "--suite", "suite"]
    command += ["--jobs", "1", "--hang-after", "90", "--json", "out.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        logs = "runs/*/b/fault/0/log/*"
        wait_for(
            lambda: any("stands" in log.read_text() for log in tmp_path.glob(logs)), "the second"
        )
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=280)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130 and "Traceback" not in told
    assert "interrupted; what had been run is shown" in told
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["interrupted"]
    assert [bool(one["runs"]) for one in found["scripts"]] == [True, False]
