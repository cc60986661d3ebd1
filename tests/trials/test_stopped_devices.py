"""Verdicts on devices that stop while all hosts go on: named where nothing else explains it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from hanglab.analyzer.verdict import Cause, Status
from hanglab.harness.trials.faults import Fault, play_with
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.programs import Program
from hanglab.harness.trials.shapes.layouts import context_ring, halo, tensor_and_data
from hanglab.harness.trials.shapes.pipelines import gpipe
from hanglab.harness.trials.truth import Trial
from tests.trials.judging import Judgement, describe, judge, try_trial

SHAPES = {"tensor_and_data": tensor_and_data, "ring": context_ring, "halo": halo, "pipe": gpipe}


def trial_of(program: Program, fault: Fault, *, timing: bool) -> Trial:
    play = play_with(program, (fault,))
    assert play.open
    return Trial(0, program, (fault,), play, replace(no_loss(play), timing=timing))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_started_everywhere_but_on_one_device(shape: str, seed: int) -> None:
    program = SHAPES[shape](Random(seed))
    for rank in range(program.size):
        trial = trial_of(program, Fault("device_stop", rank, at=1), timing=True)
        verdict = try_trial(trial)
        assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.MISSING_RANK), describe(
            trial, verdict, judge(trial, verdict)
        )
        assert verdict.culprits == [rank]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seeds", [(0, 1), pytest.param((0, 1, 2, 3), marks=pytest.mark.long)])
def test_without_timing_nobody_else_is_named(shape: str, seeds: tuple[int, ...]) -> None:
    """Only the rank that all has in common which nothing else holds up, or nobody."""
    named = 0
    for seed in seeds:
        program = SHAPES[shape](Random(seed))
        for rank in range(program.size):
            trial = trial_of(program, Fault("device_stop", rank, at=1), timing=False)
            verdict = try_trial(trial)
            judgement = judge(trial, verdict)
            assert verdict.culprits in ([], [rank]), describe(trial, verdict, judgement)
            assert judgement is not Judgement.GUESS, describe(trial, verdict, judgement)
            named += verdict.culprits == [rank]
    assert named or shape == "tensor_and_data"  # Its hosts wait before a second group shows it.
