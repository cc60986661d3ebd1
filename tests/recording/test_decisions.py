"""The statement at which the ranks of a recorded job parted, and Cases that hold no source."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import PROGRAMS, hanglab

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Cause, DecisionWay
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.rank.branches.ring import BranchRing

pytestmark = needs_torch

PROGRAM = PROGRAMS / "branching_program.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
RUN = [*TORCHRUN, "--nproc-per-node", "3", str(PROGRAM), "hang"]


def recorded(folder: Path, *options: str, **variables: str) -> tuple[Path, str]:
    """The Case of a run that hangs, and what it wrote on standard error."""
    case = folder / "case"
    words = ["record", "--out", str(case), "--hang-after", "2", *options, "--", *RUN]
    done = hanglab(*words, cwd=folder, **variables)
    assert done.returncode == 124, done.stderr
    return case, done.stderr


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return recorded(tmp_path_factory.mktemp("hung"))


def test_the_verdict_shows_the_branch_and_who_went_which_way(hung):
    verdict = analyze(hung[0])
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [1])
    decision = verdict.decision
    assert decision is not None
    assert decision.text == "if torch.isnan(value).any():"
    lines = PROGRAM.read_text().splitlines()
    assert lines[decision.line - 1].strip() == decision.text
    assert (Path(decision.file).name, decision.function) == (PROGRAM.name, "average")
    assert [way.ranks for way in decision.ways] == [[1], [0, 2]]
    assert all(isinstance(way, DecisionWay) and way.way for way in decision.ways)


def test_people_see_it_and_programs_read_it(hung):
    case, told = hung
    assert "if torch.isnan(value).any():" in told
    shown = hanglab("analyze", str(case), "--json", cwd=case.parent)
    assert json.loads(shown.stdout)["decision"]["function"] == "average"


@pytest.mark.long
@pytest.mark.parametrize(
    "off", ["--no-source", pytest.param("HANGLAB_SOURCE=0", marks=pytest.mark.long)]
)
def test_a_case_without_source_names_the_cause_alone(tmp_path, off):
    name, _, value = off.partition("=")
    case, told = recorded(tmp_path, **{name: value}) if value else recorded(tmp_path, off)
    assert not any(host.read(files.SOURCES) for host in CaseReader(case).hosts.values())
    verdict = analyze(case)
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [1])
    assert verdict.decision is None and "isnan" not in told


@pytest.mark.slow
def test_values_of_the_condition_are_shown_on_request_and_no_others(tmp_path):
    case, told = recorded(tmp_path, "--locals")
    kept = {rank.rank: rank.read(files.LOCALS) for rank in CaseReader(case).ranks}
    assert {one.name for rows in kept.values() for one in rows} == {"step", "value"}
    decision = analyze(case).decision
    assert decision is not None
    # Rank 1 has come back from the function; its peers stand in it.
    assert [(one.rank, one.name) for one in decision.values] == [(0, "value"), (2, "value")]
    assert all("tensor" in one.value.lower() for one in decision.values)
    assert "on rank 2" in told


def test_without_being_asked_for_no_value_is_kept(hung):
    assert not list(hung[0].rglob("locals.json"))


def test_a_redacted_copy_holds_no_source(hung, tmp_path):
    folder = tmp_path / "copy"
    done = hanglab("redact", str(hung[0]), "--out", str(folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(hung[0].rglob("sources.json"))
    assert not list(folder.rglob("sources.json"))
    verdict = analyze(folder)
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [1])
    assert verdict.decision is None


def test_source_alone_does_not_contradict_recorded_branches(hung, tmp_path):
    case = tmp_path / "case"
    shutil.copytree(hung[0], case)
    assert analyze(case).decision is not None
    for rank in CaseReader(case).ranks:
        # Whole, and without a branch: none of the ranks went another way than its peers.
        BranchRing(rank.folder / files.BRANCHES.name)
    verdict = analyze(case)
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [1])
    assert verdict.decision is None
    assert any("took the same branches" in one.detail for one in verdict.evidence)


@pytest.mark.slow
def test_a_round_that_was_passed_over_long_ago_is_named_by_recorded_branches(tmp_path):
    program = PROGRAMS / "round_passed_over.py"
    case = tmp_path / "case"
    words = ["record", "--out", str(case), "--hang-after", "2", "--branches", "--"]
    words += [*TORCHRUN, "--nproc-per-node", "3", str(program)]
    assert hanglab(*words, cwd=tmp_path).returncode == 124
    verdict = analyze(case)
    assert (verdict.cause, verdict.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])
    decision = verdict.decision
    assert decision is not None
    assert decision.text == "if empty:"
    assert [(way.ranks, way.way) for way in decision.ways] == [
        ([2], "took the branch"),
        ([0, 1], "passed over the branch"),
    ]
    # Source and call sites alone do not tell.
    for file in case.glob("**/branches*.bin"):
        file.unlink()
    assert analyze(case).decision is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("handler", Cause.COLLECTIVE_MISMATCH),
        ("thread", Cause.CRASH),
        ("line", Cause.UNEVEN_INPUTS),
    ],
)
def test_no_statement_parted_who_was_taken_away_or_ended_itself(tmp_path, how, cause):
    case = tmp_path / "case"
    words = ["record", "--out", str(case), "--hang-after", "2", "--", *TORCHRUN]
    program = PROGRAMS / "leaving_program.py"
    hanglab(*words, "--nproc-per-node", "3", str(program), how, cwd=tmp_path)
    verdict = analyze(case)
    assert (verdict.cause, verdict.culprits) == (cause, [1])
    assert verdict.decision is None
    told = any("handles SIGALRM" in one.detail for one in verdict.evidence)
    assert told == (how == "handler")
