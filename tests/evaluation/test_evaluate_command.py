"""``hanglab eval`` on small corpora: results, heuristics of others, broken Cases, interruption."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conditions import wait_for
from installed import needs_torch

from hanglab.analyzer.program.layouts import LAYOUTS
from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import ARCHIVE, entry_names
from hanglab.harness.evaluation.simulated import simulated_cases

CORPUS = Path(__file__).parents[1] / "corpus"
NAMES = ("local/crash.fault", "local/crash.control", "local/missing_rank.fault")
GOOD = """
from hanglab.analyzer.proposal import propose
from hanglab.analyzer.verdict import Cause

def better(facts):
    for rank, view in facts.ranks.items():
        if rank == 2 and facts.stuck:
            yield propose(facts, Cause.IO_BLOCKED, [2], confidence=0.95, summary="It waits.")
"""
BAD = """
import os
from hanglab.analyzer.proposal import propose
from hanglab.analyzer.verdict import Cause

def raises(facts):
    raise RuntimeError("not today")

def lies(facts):
    yield propose(facts, Cause.CRASH, [99], confidence=1.0, summary="It did.")

def helper(number):
    return number
"""
KILLS = """
import os

def kills(facts):
    if facts.stuck:
        os._exit(3)
    return ()
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    for name in NAMES:
        for suffix in (ARCHIVE, ".json"):
            target = folder / f"{name}{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CORPUS / f"{name}{suffix}", target)
    return folder


def evaluate(*words: object) -> int:
    # One worker imports the analyzer once; what comes later decides, as with all options.
    return main(["eval", "--jobs", "1", *map(str, words)])


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_right_verdicts_are_counted_and_written_in_all_forms(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "markdown", "html")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", path)]
    assert evaluate("--corpus", corpus, *options, "--min-recall", 1, "--max-innocent", 0) == 0
    found = read(files["json"])
    assert found["schema"] == "hanglab.evaluation/1" and found["comparison"] is None
    assert found["measures"]["recall"]["count"] == found["measures"]["recall"]["of"] == 2
    assert {one["name"] for one in found["cases"]} == set(NAMES)
    out = capsys.readouterr().out
    assert "missing_rank" in out and "100 %, 3 of 3" in out.replace(" (44-100)", "")
    assert "| missing_rank | 1 |" in files["markdown"].read_text()
    page = files["html"].read_text()
    assert page.startswith("<!doctype html>") and "<td>missing_rank</td>" in page
    assert "http" not in page and "<svg" in page


@pytest.mark.slow
def test_a_heuristic_is_compared_with_what_is_installed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(GOOD)
    out = tmp_path / "out.json"
    assert evaluate("--corpus", corpus, "--heuristic", file, "--json", out) == 0
    comparison = read(out)["comparison"]
    (change,) = comparison["changes"]
    assert change["name"] == "local/missing_rank.fault" and change["direction"] == "worse"
    assert change["before"] == "missing_rank by 2" and change["after"] == "io_blocked by 2"
    assert (comparison["gained"], comparison["lost"]) == (0, 1)
    told = capsys.readouterr().out
    assert "io_blocked by 2" in told and "McNemar" in told

    # The other way round, against what was stored: what was wrong is right again.
    assert evaluate("--corpus", corpus, "--against", out) == 0
    assert "better" in capsys.readouterr().out


@pytest.mark.long
def test_a_detector_left_out_no_longer_decides(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    from hanglab.analyzer.registry import heuristics

    names = [name for name, _ in heuristics()]
    every = [word for name in names for word in ("--without", name)]
    options = ("--corpus", corpus, "--json", out)
    assert evaluate(*options, *every, "--min-recall", 0.5) == 1
    found = read(out)
    assert found["measures"]["recall"]["count"] == 0
    assert found["comparison"]["lost"] >= 2


def test_heuristics_that_raise_or_lie_are_told_and_change_nothing(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "bad.py", tmp_path / "out.json"
    file.write_text(BAD)
    assert evaluate("--corpus", corpus, "--heuristic", file, "--json", out) == 0
    found = read(out)
    assert set(found["failed_heuristics"]) == {"raises", "lies"}
    assert found["failed_heuristics"]["raises"][0] == 3
    assert "[99]" in found["failed_heuristics"]["lies"][1]
    # A sound job is not called so by an analysis of which a part failed; that is the one change.
    assert [one["name"] for one in found["comparison"]["changes"]] == ["local/crash.control"]
    assert "RuntimeError: not today" in capsys.readouterr().out


@pytest.mark.slow
def test_a_heuristic_that_kills_its_process_costs_its_own_cases_alone(
    corpus: Path, tmp_path: Path
) -> None:
    file, out = tmp_path / "kills.py", tmp_path / "out.json"
    file.write_text(KILLS)
    assert evaluate("--corpus", corpus, "--heuristic", file, "--json", out, "--jobs", 2) == 0
    crashed = {one["name"] for one in read(out)["cases"] if "crash" in one["answers"]["hanglab"]}
    assert crashed == {"local/missing_rank.fault"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "There is no file"),
        ("x = 1\n", "has no heuristic"),
        ("import not_there_at_all\n", "cannot be imported: ModuleNotFoundError"),
        ("def mine(facts:\n", "cannot be imported: SyntaxError"),
    ],
)
def test_files_without_a_heuristic_are_refused_in_a_sentence(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    assert evaluate("--heuristic", file) in (4, 64)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--min-recall", "1.5"),
        ("--min-recall", "nan"),
        ("--max-innocent", "-0.1"),
        ("--max-inconclusive", "inf"),
        ("--simulated", "-1"),
        ("--peer", "oracle"),
        ("--without", "no_such_heuristic"),
        ("--against", "missing.json"),
        ("--json", "no/such/folder/out.json"),
        ("crash",),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(options: tuple[str, ...]) -> None:
    assert evaluate(*options) == 64


def test_broken_and_unlabelled_cases_are_told_and_the_rest_is_kept(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (corpus / "local/crash.fault.tar.xz").write_bytes(b"no archive")
    whole = (corpus / "local/missing_rank.fault.tar.xz").read_bytes()
    for name, text in (
        ("unlabelled", None),
        ("not_json", "{"),
        ("wrong_type", '{"source": "x", "licence": "x", "truth": "hung"}'),
        ("empty", '{"source": "x", "licence": "x", "truth": []}'),
        ("unknown_key", '{"source": "x", "licence": "x", "truth": [{"status": "hung", "l": 1}]}'),
    ):
        (corpus / f"{name}.tar.xz").write_bytes(whole)
        if text is not None:
            (corpus / f"{name}.json").write_text(text)
    (corpus / "cut.tar.xz").write_bytes(whole[: len(whole) // 2])
    shutil.copy(corpus / "local/missing_rank.fault.json", corpus / "cut.json")
    out = tmp_path / "out.json"
    assert evaluate("--corpus", corpus, "--json", out) == 4
    found = read(out)
    assert {one["name"] for one in found["cases"]} == set(NAMES) - {"local/crash.fault"}
    broken = found["broken"]
    named = {"unlabelled", "not_json", "wrong_type", "empty", "unknown_key", "cut"}
    assert set(broken) == named | {"local/crash.fault"}
    assert all(reason.endswith(".") and "Traceback" not in reason for reason in broken.values())
    assert "has no label" in broken["unlabelled"]
    assert "7 Cases could not be judged" in capsys.readouterr().err


@pytest.mark.parametrize("made", [True, False])
def test_a_folder_without_cases_is_refused(
    made: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nothing"
    if made:
        folder.mkdir()
    assert evaluate("--corpus", folder) == 4
    err = capsys.readouterr().err
    assert ("holds no Case" if made else "is no folder") in err and "hanglab corpus add" in err


def test_every_layout_is_among_the_simulated_jobs() -> None:
    """Ranks and layouts are drawn, and not every number of ranks fits each layout."""
    cases = simulated_cases(100)
    assert len({case.name for case in cases}) == 100
    drawn = {case.name.removeprefix("simulated/").partition("-")[0] for case in cases}
    assert drawn == {*LAYOUTS, "trial"}


@pytest.mark.long
def test_simulated_jobs_are_the_same_every_time_and_mostly_right(tmp_path: Path) -> None:
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    assert evaluate("--simulated", 8, "--json", first) == 0
    assert evaluate("--simulated", 8, "--against", first, "--json", again) == 0
    found = read(again)
    assert found["comparison"]["cases"] == 8 and found["comparison"]["changes"] == []
    assert found["measures"]["innocent"]["count"] == 0
    assert found["measures"]["recall"]["count"] >= 2


def test_runs_of_scenarios_are_judged_by_their_truth(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hanglab.harness.corpus.entries import unpack_entry

    expected = {
        "status": "hung",
        "cause": "missing_rank",
        "culprits": [2],
        "location": "missing_rank.py:31 or 32",
        "also": [],
    }
    # A fault that was not reproduced, a plain script, and what was written by hand.
    jobs = [
        ("pass", expected),
        ("not reproduced", expected),
        ("pass", None),
        ("pass", {"status": "hung", "location": "train.py"}),
        ("pass", "hung"),
    ]
    for number, (outcome, expectation) in enumerate(jobs):
        job = tmp_path / "runs" / "missing_rank" / "fault" / str(number)
        job.mkdir(parents=True)
        unpack_entry(CORPUS, "local/missing_rank.fault", job / "case")
        text = json.dumps({"outcome": outcome, "expected": expectation})
        (job / "truth.json").write_text(text)
    out = tmp_path / "out.json"
    assert evaluate("--mutants", tmp_path / "runs", "--json", out) == 4
    assert set(read(out)["broken"]) == {"missing_rank/fault/3", "missing_rank/fault/4"}
    (case,) = read(out)["cases"]
    assert case["name"] == "missing_rank/fault/0"
    assert case["truth"][0]["lines"] == [31, 32]
    assert case["scores"]["hanglab"]["right"]
    assert evaluate("--mutants", corpus) == 4
    assert "holds no Case that showed the fault" in capsys.readouterr().err


@pytest.mark.long
@needs_torch
def test_scenarios_are_run_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out.json"
    assert evaluate("--live", "missing_rank", "--json", out, "--min-recall", 1) == 0
    found = read(out)
    assert [one["name"] for one in found["cases"]] == [
        "live/missing_rank.fault.0",
        "live/missing_rank.control.0",
    ]
    assert found["measures"]["line"]["count"] == 1
    assert evaluate("--live", "no_such_scenario") == 64


@pytest.mark.slow
def test_mutants_are_judged_by_their_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hanglab.harness.corpus.entries import unpack_entry

    folder = tmp_path / "train-mutated"
    mutant = {
        "operator": "early_return",
        "fate": "missed",
        "expected_causes": ["missing_rank", "uneven_inputs"],
        "expected_culprits": [2],
        "expected_lines": [27],
        "line_right": True,
        "end": "hangs",
    }
    mutants = [
        {**mutant, "mutant": "m001", "artifacts": "/moved/away"},
        {**mutant, "mutant": "m002", "artifacts": "/x", "fate": "silent"},
        {**mutant, "mutant": "m003", "artifacts": "/x"},
        {"mutant": "m004", "fate": "found"},
    ]
    for job, entry in (("m001/fault", "missing_rank.fault"), ("original/control", "crash.control")):
        (folder / "jobs" / job / "0").mkdir(parents=True)
        unpack_entry(CORPUS, f"local/{entry}", folder / "jobs" / job / "0" / "case")
    (folder / "report.json").write_text(json.dumps({"mutants": mutants}))
    out = tmp_path / "out.json"
    assert evaluate("--mutants", folder, "--json", out) == 4
    found = read(out)
    assert {one["name"]: one["scores"]["hanglab"]["right"] for one in found["cases"]} == {
        "train-mutated/m001": True,
        "train-mutated/original": True,
    }
    assert set(found["broken"]) == {"m003", "m004"}
    (folder / "report.json").write_text("{}")
    assert evaluate("--mutants", folder) == 4
    assert "is no report" in capsys.readouterr().err


@pytest.mark.long
@needs_torch
def test_torchfrtrace_is_asked_of_what_it_can_read_and_given_no_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hanglab.harness.evaluation.peers.torchfrtrace import Torchfrtrace

    dumps = tmp_path / "dumps"
    simulate = ["simulate", "--ranks", "4", "--fault", "size", "--operations", "20"]
    assert main([*simulate, "--seed", "3", "--out", str(dumps)]) == 0
    truth = read(tmp_path / "dumps.truth.json")
    answer = Torchfrtrace().conclude(dumps)
    assert answer.cause == "size_mismatch"
    # It takes the first rank's word: who is right is on whichever side that one is not.
    first = 0 in truth["culprits"]
    assert answer.culprits == ([1, 2, 3] if first else truth["culprits"])

    mark = tmp_path / "ran"
    code = b"cos\nsystem\n(S'touch %s'\ntR." % os.fsencode(mark)
    (dumps / "nccl_trace_rank_3").write_bytes(code)
    refused = Torchfrtrace().conclude(dumps)
    assert refused.refused is not None and "holds code" in refused.refused and not mark.exists()


def test_ctrl_c_keeps_what_was_judged(tmp_path: Path) -> None:
    slow, out = tmp_path / "slow.py", tmp_path / "out.json"
    seen = tmp_path / "seen"
    slow.write_text(
        "import pathlib, time\n"
        "def slow(facts):\n"
        f"    with open({str(seen)!r}, 'a') as file:\n"
        "        file.write('x')\n"
        f"    if len(open({str(seen)!r}).read()) > 3:\n"
        "        time.sleep(25)\n"
        "    return ()\n"
    )
    command = [sys.executable, "-m", "hanglab.harness.cli", "eval", "--jobs", "1"]
    command += ["--heuristic", str(slow), "--json", str(out), "--against", str(_base(tmp_path))]
    # As a terminal does it: the signal goes to all processes of the group.
    process = subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        wait_for(lambda: seen.exists() and len(seen.read_text()) > 3, "the fourth Case")
        os.killpg(process.pid, signal.SIGINT)
        told, errors = process.communicate(timeout=280)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "interrupted; 3 Cases had been judged" in errors
    left = len(entry_names(CORPUS)) - 3
    assert "Traceback" not in errors and f"interrupted, {left} left" in told
    found = read(out)
    assert found["interrupted"] and len(found["cases"]) == 3


def _base(folder: Path) -> Path:
    base = folder / "base.json"
    assert evaluate("--simulated", 1, "--json", base) == 0
    return base
