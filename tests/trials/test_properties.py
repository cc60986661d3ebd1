"""Properties of verdicts on drawn programs, whose failures Hypothesis makes small."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from hanglab.harness.trials.faults import Fault, play_with
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.programs import Group, Issue, Program, Wait
from hanglab.harness.trials.truth import Trial
from tests.trials.judging import Judgement, describe, judge, try_trial
from tests.trials.strategies import trials


def stale(at: float) -> Trial:
    """Two ranks meet once; rank 1 stops before, and was dumped as the job began."""
    body = (Issue("0", "all_reduce", work="w"), Wait("w"))
    groups = {"0": Group((0, 1), "default_pg")}
    program = Program("by hand", groups, ((body,), (body,)))
    faults = (Fault("host_stop", 1),)
    played = play_with(program, faults)
    loss = replace(no_loss(played), moments=(inf, at))
    return Trial(0, program, faults, played, loss)


def test_a_rank_dumped_before_the_others_began_is_not_accused() -> None:
    """Found by Hypothesis: its file is ten minutes older than the operation it is missed in."""
    trial = stale(0.0)
    verdict = try_trial(trial)
    assert verdict.culprits == [], describe(trial, verdict, judge(trial, verdict))


FEW = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def assert_no_innocent_is_accused(trial: Trial) -> None:
    verdict = try_trial(trial)
    judgement = judge(trial, verdict)
    assert judgement is not Judgement.INNOCENT, describe(trial, verdict, judgement)


@given(trial=trials())
@FEW
def test_no_innocent_is_accused(trial: Trial) -> None:
    assert_no_innocent_is_accused(trial)


@pytest.mark.long
@given(trial=trials(stale=True))
@settings(FEW, max_examples=100, phases=[Phase.generate])
def test_nobody_is_accused_for_what_a_dump_is_too_old_to_hold(trial: Trial) -> None:
    """Of files that have kept their times: without them nothing tells that a dump is old."""
    assume(trial.loss.file_times)
    verdict = try_trial(trial)
    early = {rank for rank, moment in enumerate(trial.loss.moments) if moment < inf}
    accused = {rank for finding in verdict.findings for rank in finding.culprits}
    assert not accused & early & trial.innocent, describe(trial, verdict, judge(trial, verdict))


@given(trial=trials())
@FEW
def test_the_truth_explains_its_own_dumps(trial: Trial) -> None:
    """The fault that was put in is never found innocent by the trial's own reckoning."""
    assert not trial.culprits & trial.innocent
    assert not trial.rivals & trial.innocent
    if trial.healthy_too and trial.faults:
        assert not trial.decidable
