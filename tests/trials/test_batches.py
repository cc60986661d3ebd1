"""Verdicts on batches of sends and receives, which finish as a whole."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from hanglab.harness.trials.drawing import assemble
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.shapes.layouts import context_ring, halo
from tests.trials.judging import Judgement, describe, judge, try_trial

SHAPES = {"ring": context_ring, "halo": halo}


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["skip", "order"])
def test_whoever_lacks_in_a_batch_is_named_whatever_else_the_batch_holds(
    shape: str, kind: str
) -> None:
    """A message whose halves both came waits for its batch, and neither for network nor device."""
    judged = []
    for seed in range(24):
        random = Random(seed)
        trial = assemble(seed, random, SHAPES[shape](random), kind)
        if trial is None or trial.program.size < 3:
            continue
        trial = replace(trial, loss=no_loss(trial.play))
        verdict = try_trial(trial)
        judgement = judge(trial, verdict)
        assert judgement in (Judgement.RIGHT, Judgement.INCONCLUSIVE), describe(
            trial, verdict, judgement
        )
        judged.append(judgement)
    assert judged.count(Judgement.RIGHT) > 3
