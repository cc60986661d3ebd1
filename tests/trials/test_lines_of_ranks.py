"""Ranks that make the call of their peers from a line of their own: one calls it in a branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status
from hanglab.harness.trials.faults import Fault, play_with
from hanglab.harness.trials.folders import write_folder
from hanglab.harness.trials.losses import no_loss
from hanglab.harness.trials.programs import Compute, Group, Issue, Program, Step, Wait
from hanglab.harness.trials.truth import Trial

ROUNDS = 5


def program(size: int, leaders: set[int], rounds: set[int]) -> Program:
    """Each round a barrier, in some of them from the leaders' own line, and two reductions."""
    ranks = []
    for rank in range(size):
        steps: list[Step] = []
        for number in range(ROUNDS):
            line = 50 if rank in leaders and number in rounds else 40
            steps += [Issue("0", "barrier", work=f"b{number}", line=line), Wait(f"b{number}")]
            for work in (f"a{number}", f"c{number}"):
                steps += [Compute(1.0), Issue("0", "all_reduce", numel=64, work=work, line=60)]
                steps.append(Wait(work))
        ranks.append((tuple(steps),))
    return Program("by hand", {"0": Group(tuple(range(size)), "default_pg")}, tuple(ranks))


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", ["host_stop", "device_stop"])
@pytest.mark.parametrize("rounds", [{0}, {3}, set(range(ROUNDS)), {0, 2, 4}])
@pytest.mark.parametrize(("size", "leaders"), [(3, {0}), (4, {3}), (8, {0, 4}), (5, {0, 1, 2})])
def test_nobody_is_accused_for_the_line_of_a_call_that_met_its_peers(
    size: int, leaders: set[int], rounds: set[int], kind: str, tmp_path: Path
) -> None:
    """Another rank has stopped: the leader's call was told as a departure, of 132 in 240 jobs."""
    whole = program(size, leaders, rounds)
    accused = 0
    for number, at in enumerate(range(4, 3 * ROUNDS if kind == "device_stop" else 40, 7)):
        faults = (Fault(kind, 2, 0, at),)
        played = play_with(whole, faults)
        folder = tmp_path / str(number)
        write_folder(Trial(0, whole, faults, played, no_loss(played)), folder)
        verdict = analyze(folder)
        if verdict.status is Status.HEALTHY:
            assert not played.open
            continue
        assert verdict.status is Status.INCONCLUSIVE or verdict.culprits == [2], verdict.summary
        accused += verdict.culprits == [2]
    assert accused or kind == "device_stop"
