"""Faults of trials, by another player, that the analyzer's simulation has to reproduce."""

from __future__ import annotations

import pytest

from hanglab.analyzer.verdict import Cause
from tests.trials.judging import Judgement, describe, try_seed

REPRODUCED = {
    "a call on another group": (600000142, 600000221, 600000356, 600000384),
    "a message to another rank that has ended": (600000090, 600000134, 600000403, 600000434),
    "a stop where orders differ, so that no stream waits for another": (600000591, 600001172),
    "a stop beside a rank that was dumped on its way": (600000070,),
}


@pytest.mark.parametrize("seed", [seed for seeds in REPRODUCED.values() for seed in seeds])
def test_the_fault_leaves_what_was_found(seed: int) -> None:
    result = try_seed(seed)
    assert result is not None
    trial, verdict, judgement = result
    assert judgement is Judgement.RIGHT, describe(*result)
    assert set(verdict.culprits) == trial.culprits
    (detail,) = (one.detail for one in verdict.evidence if one.source == "simulation")
    assert detail.startswith("Simulated: ") and "brings about what was found; without it" in detail
    assert "no fault" not in detail


def test_the_size_of_what_meets_on_a_wrong_group_is_no_cause() -> None:
    result = try_seed(330002588)
    assert result is not None
    trial, verdict, judgement = result
    assert judgement is Judgement.RIGHT, describe(*result)
    assert verdict.cause is Cause.COLLECTIVE_MISMATCH
    # The other one may as well have called on the wrong group what it was to call on that one.
    assert set(verdict.culprits) == trial.culprits | trial.partners
    assert verdict.summary.endswith(
        "; simulated, one of ranks 0 and 1 called on a group what was to be called on another one."
    )
    assert "nothing tells" not in verdict.summary
