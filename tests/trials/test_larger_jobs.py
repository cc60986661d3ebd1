"""Pipelines of more stages than the shapes of trials draw, with one message to another rank."""

from __future__ import annotations

from random import Random

import pytest

from hanglab.harness.trials.faults import Fault, play_with
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.programs import issues_of
from hanglab.harness.trials.shapes.pipelines import gpipe, one_forward_one_backward
from hanglab.harness.trials.truth import Trial
from tests.trials.judging import Judgement, describe, judge, try_trial

SHAPES = {"1f1b": one_forward_one_backward, "gpipe": gpipe}


class Larger(Random):
    """Draws of 16 stages and 8 microbatches."""

    def randint(self, a: int, b: int) -> int:
        return {(2, 5): 16, (3, 7): 8}.get((a, b)) or super().randint(a, b)


@pytest.mark.few(3)
@pytest.mark.parametrize("phase", ["first", "last"])
@pytest.mark.parametrize("stage", [3, 10])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_receive_from_another_stage_accuses_nobody_else(
    shape: str, stage: int, phase: str
) -> None:
    """The first receive of the cooldown, or of the backward phase, or the last one of all."""
    program = SHAPES[shape](Larger(stage))
    steps = program.ranks[stage][0]
    backward = [
        at
        for at, step in enumerate(steps)
        for issue in issues_of(step)
        if issue.kind == "recv" and issue.peer == stage + 1
    ]
    # Of 1F1B the cooldown has lines of its own, behind those of the steady phase.
    lines = [issues_of(steps[at])[-1].line for at in backward]
    at = backward[lines.index(lines[-1]) if phase == "first" else -1]
    part = next(i for i, one in enumerate(issues_of(steps[at])) if one.peer == stage + 1)
    fault = Fault("peer", stage, 0, at, part=part, value=(stage + 7) % program.size)
    play = play_with(program, (fault,))
    trial = Trial(0, program, (fault,), play, no_loss(play))
    verdict = try_trial(trial)
    judgement = judge(trial, verdict)
    assert judgement in (Judgement.RIGHT, Judgement.MISSED, Judgement.INCONCLUSIVE), describe(
        trial, verdict, judgement
    )
