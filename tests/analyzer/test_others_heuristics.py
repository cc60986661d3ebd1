"""Heuristics of other distributions: that of docs/heuristics.md, installed, and ones that lie."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_engine import ended

from hanglab.analyzer import engine, registry
from hanglab.analyzer.catalogue import Category, Cause, CauseRow, Observation, Stage, register
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Heuristic, Proposal, propose
from hanglab.analyzer.verdict import Evidence, Location, Status
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.case.writer import write_bytes, write_manifest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "heuristics.md"
LIAR = """
from hanglab.analyzer.proposal import propose
from hanglab.analyzer.verdict import Cause, Status

def liar(facts):
    yield propose(facts, Cause.CRASH, [99], status=Status.HUNG, confidence=1.0, summary="It did.")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the page's distribution, and one that lies."""
    # Found, not imported: setuptools insists on being imported before distutils.
    for needed in ("pip", "setuptools"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    folder = tmp_path_factory.mktemp("others")
    code, project = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in (("traced_processes", code), ("liar", LIAR)):
        source = folder / name
        source.mkdir()
        (source / f"{name}.py").write_text(text)
        described = project.replace("traced-processes", name).replace("traced_processes", name)
        (source / "pyproject.toml").write_text(described)
        options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
        pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site")]
        subprocess.run([*pip, str(source)], check=True, cwd=folder)
    return folder / "site"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Case of a job whose rank 2 was stopped, by a debugger for all that /proc tells."""
    folder = tmp_path_factory.mktemp("traced") / "case"
    unpack_entry(ROOT / "tests" / "corpus", "local/process_frozen.fault", folder)
    (rank,) = (one for one in CaseReader(folder).ranks if one.rank == 2)
    kept = (rank.folder / files.PROCESSES.name).read_bytes()
    assert kept.count(b'"state":"T"') > 1
    write_bytes(rank.folder / files.PROCESSES.name, kept.replace(b'"state":"T"', b'"state":"t"'))
    write_manifest(folder, "test")
    return folder


def _run(site: Path | None, *command: str) -> Any:
    path = {"PYTHONPATH": str(site)} if site is not None else {}
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **path}, capture_output=True, check=False
    )
    assert done.returncode in (0, 2), done.stderr
    return msgspec.json.decode(done.stdout)


@pytest.mark.slow
def test_one_with_a_cause_of_its_own_decides(installed: Path, traced: Path) -> None:
    analyze = ("-m", "hanglab.harness.cli", "analyze", str(traced), "--json")
    assert _run(None, *analyze)["cause"] != "process_traced"
    verdict = _run(installed, *analyze)
    assert (verdict["cause"], verdict["culprits"]) == ("process_traced", [2])
    assert (verdict["category"], verdict["status"]) == ("resource", "hung")
    assert verdict["advice"] == "Let the debugger go on, or detach it."
    # The one that lies is named, and nobody is accused.
    (unusable,) = verdict["inputs"]["unusable"]
    assert unusable["file"] == "heuristic liar" and "[99]" in unusable["reason"]


def test_its_cause_is_known_where_nothing_was_analysed(installed: Path) -> None:
    code = (
        "from hanglab.harness import Cause, Expect\n"
        "expected = Expect('process_traced', culprits={2})\n"
        "assert expected.cause is Cause('process_traced')\n"
        "print('\"' + expected.cause.advice + '\"')"
    )
    assert _run(installed, "-c", code) == "Let the debugger go on, or detach it."


def _propose(facts: CaseFacts, **changed: Any) -> Proposal:
    given: dict[str, Any] = {
        "cause": Cause.OOM_KILLED,
        "culprits": [0],
        "status": Status.FAILED,
        "confidence": 0.99,
        "summary": "It was rank 0.",
        "failure_on_record": True,
    }
    return propose(facts, **given | changed)


def _of_category(facts: CaseFacts) -> Proposal:
    proposal = _propose(facts)
    proposal.finding.category = Category.NETWORK
    return proposal


def _without_cause(facts: CaseFacts) -> Proposal:
    proposal = _propose(facts)
    proposal.finding.cause = proposal.finding.category = None
    return proposal


def _leaves(facts: CaseFacts) -> Proposal:
    sys.exit("I have seen enough")


LIES = {
    "another job's rank": lambda f: _propose(f, culprits=[0, 7]),
    "a rank that is text": lambda f: _propose(f, culprits=["0"]),
    "another job's victim": lambda f: _propose(f, victims=[-1]),
    "culprit and victim": lambda f: _propose(f, victims=[0, 1]),
    "another job's line": lambda f: _propose(f, location=Location("a.py", 1, "f", 9)),
    "another job's evidence": lambda f: _propose(f, evidence=[Evidence("stack", 5, "stands")]),
    "evidence that is none": lambda f: _propose(f, evidence=["it stands"]),
    "alternative": lambda f: _propose(f, alternatives=[(Cause.CRASH, [3], 0.1)]),
    "alternatives": lambda f: _propose(f, alternatives=[Cause.CRASH]),
    "more than sure": lambda f: _propose(f, confidence=1.5),
    "not a number": lambda f: _propose(f, confidence=float("nan")),
    "healthy": lambda f: _propose(f, status=Status.HEALTHY),
    "another category": _of_category,
    "no cause": _without_cause,
    "leaves": _leaves,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_named_and_accuses_nobody(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def liar(facts: CaseFacts) -> Iterable[Proposal]:
        return [LIES[lie](facts)]

    own: tuple[tuple[str, Heuristic], ...] = registry.heuristics()
    monkeypatch.setattr(engine, "heuristics", lambda: (("liar", liar), *own))
    verdict = engine.conclude(ended(None, 9))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])
    (unusable,) = verdict.inputs.unusable
    assert unusable.file == "heuristic liar" and unusable.reason


def test_a_row_does_not_take_the_place_of_another() -> None:
    row = CauseRow("seen_in_a_test", Category.SOFTWARE, Stage.OUTSIDE, "Look there.")
    cause = register(row)
    assert Cause("seen_in_a_test") is cause is register(row)
    assert cause.fits(Observation.STANDSTILL) and cause.status is Status.HUNG
    for other in (
        CauseRow("seen_in_a_test", Category.NETWORK, Stage.OUTSIDE, "Look there."),
        CauseRow("crash", Category.SOFTWARE, Stage.OUTSIDE, "Look there."),
        CauseRow("healthy", Category.SOFTWARE, Stage.OUTSIDE, "Look there."),
        CauseRow("Seen", Category.SOFTWARE, Stage.OUTSIDE, "Look there."),
        CauseRow("seen here", Category.SOFTWARE, Stage.OUTSIDE, "Look there."),
        CauseRow("seen", Category.SOFTWARE, Stage.OUTSIDE, ""),
        CauseRow("seen", "software", Stage.OUTSIDE, "Look there."),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError):
            register(other)
    assert Cause.CRASH.stage is Stage.EXIT
    with pytest.raises(ValueError):
        Cause("seen")
