"""Probabilities of findings: shares of what was right, drawn towards a detector's strength."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.calibration import (
    CalibrationRow,
    CalibrationTable,
    calibrate,
    kind_of,
    probability,
)
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status, Verdict
from hanglab.harness.corpus.entries import Truth
from hanglab.harness.evaluation.reliability import brier, reliability
from hanglab.harness.trials.drawing import make_trial
from tools.calibration.diagram import draw
from tools.calibration.fitting import fit, left_out, table_of
from tools.calibration.labelled_findings import LabelledFinding, right
from tools.calibration.played_trials import observe_trials, right_on_trial

CRASH = ("crash", True, ["exit"])


def seen(times: int, share: float, cause: str = "crash") -> list[LabelledFinding]:
    return [LabelledFinding(cause, True, ("exit",), 0.9, share)] * times


def test_without_observations_the_strength_stays() -> None:
    assert probability(CalibrationTable(20.0, []), CRASH, 0.9) == pytest.approx(0.9)


def test_what_was_right_or_wrong_before_moves_it_as_far_as_it_was_seen_often() -> None:
    def after(times: int, share: float) -> float:
        return probability(table_of(seen(times, share), 20.0), CRASH, 0.9)

    assert 0.9 < after(5, 1.0) < after(500, 1.0) < 1.0
    assert 0.9 > after(5, 0.0) > after(500, 0.0) > 0.0


def test_other_kinds_of_evidence_count_for_the_cause_and_other_causes_do_not() -> None:
    rows = [
        CalibrationRow("crash", True, ["stderr"], 100, 0.0),
        CalibrationRow("exception", True, ["exit"], 100, 0.0),
    ]
    assert probability(CalibrationTable(20.0, rows[:1]), CRASH, 0.9) < 0.3
    assert probability(CalibrationTable(20.0, rows[1:]), CRASH, 0.9) == pytest.approx(0.9)


def test_candidates_are_another_kind_of_finding() -> None:
    def finding(strength: float) -> Finding:
        return Finding(
            status=Status.HUNG,
            cause=Cause.MISSING_RANK,
            confidence=strength,
            evidence=[Evidence("stack", 1, ""), Evidence("exit", 1, ""), Evidence("stack", 2, "")],
        )

    assert kind_of(finding(0.6)) == ("missing_rank", False, ["exit", "stack"])
    assert kind_of(finding(0.61)) == ("missing_rank", True, ["exit", "stack"])


def test_a_verdict_is_as_probable_as_the_finding_that_it_leads_with() -> None:
    finding = Finding(status=Status.HUNG, cause=Cause.MISSING_RANK, confidence=0.9)
    verdict = Verdict(status=Status.HUNG, confidence=0.9, findings=[finding])
    calibrate(verdict)
    assert verdict.confidence == finding.confidence != 0.9
    undecided = calibrate(Verdict(status=Status.INCONCLUSIVE, confidence=0.0))
    assert undecided.confidence == 0.0


def test_the_weight_of_the_prior_fits_how_far_strengths_are_off() -> None:
    # Nine of ten are right of each cause, as all were said to be; then one cause never is.
    sound = [one for n in range(20) for one in (*seen(9, 1.0, f"{n}"), *seen(1, 0.0, f"{n}"))]
    off = [*seen(50, 0.0), *seen(50, 1.0, "exception")]
    assert fit(off).prior < 10.0 < fit(sound).prior


def test_a_finding_is_left_out_of_what_it_is_judged_by() -> None:
    alone = seen(1, 0.0)
    assert left_out(table_of(alone, 20.0), alone) == [pytest.approx(0.9)]


def test_scores() -> None:
    assert brier([1.0, 0.0], [1.0, 1.0]) == 0.5
    (low, high) = reliability([0.25, 0.95, 1.0], [0.0, 1.0, 0.0])
    assert (low.count, low.right, high.count, high.right) == (1, 0.0, 2, 0.5)


def test_the_same_figures_draw_the_same_picture(tmp_path: Path) -> None:
    bins = reliability([0.25, 0.95, 1.0], [0.0, 1.0, 0.0])
    for name in ("one", "two"):
        draw({"fitted": bins}, tmp_path / name)
    drawn = (tmp_path / "one").read_text()
    assert drawn == (tmp_path / "two").read_text() and ">fitted</text>" in drawn


def test_played_trials_are_labelled_by_their_truth() -> None:
    trial = make_trial(800367)  # Rank 2 made a group more than its peers.
    assert trial is not None

    def said(cause: Cause, culprits: list[int]) -> float:
        verdict = Verdict(status=Status.HUNG, cause=cause, culprits=culprits, confidence=0.9)
        return right_on_trial(verdict, trial)

    assert said(Cause.GROUP_CREATION, [2]) == 1.0
    assert said(Cause.GROUP_CREATION, [1, 2]) == 0.5
    assert said(Cause.GROUP_CREATION, [1]) == said(Cause.CRASH, [2]) == 0.0
    assert right_on_trial(Verdict(status=Status.HEALTHY, confidence=0.9), trial) == 0.0
    (found,) = observe_trials([800367], 1)
    assert (found.cause, found.sure, found.right) == ("group_creation", True, 1.0)


@pytest.mark.parametrize(
    ("named", "share"), [([1], 1.0), ([1, 2], 0.5), ([2], 0.0), ([], 0.0), ([1, 2, 3, 4], 0.25)]
)
def test_candidates_are_right_by_their_share(named: list[int], share: float) -> None:
    verdict = Verdict(status=Status.HUNG, cause=Cause.CRASH, culprits=named, confidence=0.5)
    assert right(verdict, [Truth("hung", "crash", [1])]) == share
    assert right(verdict, [Truth("hung", "exception", [1])]) == 0.0
