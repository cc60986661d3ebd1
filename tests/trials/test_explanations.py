"""Plays that are not tried as some file refutes them: the truth is as if they had been."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import inf

import pytest

from hanglab.harness.trials.drawing import make_trial
from hanglab.harness.trials.explanations import ExplainedPlay
from hanglab.harness.trials.faults import Fault, play_with
from hanglab.harness.trials.losses import Loss
from hanglab.harness.trials.player import Played
from hanglab.harness.trials.programs import Group, Issue, Program, Wait


class EveryPlay(ExplainedPlay):
    """Tries all."""

    _held_by_nothing = frozenset()  # type: ignore[assignment]

    def _may_hold(self, played: Played) -> bool:
        return True

    @cached_property
    def _oldest_held(self) -> dict[int, int]:
        """Also where nothing came behind it."""
        held = {}
        for rank, mine in enumerate(self.play.operations):
            first = 1 + max((o.number for o in mine if o.done < inf), default=-1)
            if first < len(mine):
                held[rank] = first
        return held


def truths(play: ExplainedPlay) -> list[object]:
    ranks = range(play.program.size)
    return [
        play.stalls_without_fault,
        [play.explained_by(rank) for rank in ranks],
        [play.may_have_stopped(rank) for rank in ranks],
    ]


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(2_000_000_000, 2_000_000_024))
def test_no_truth_depends_on_plays_that_files_refute(seed: int) -> None:
    trial = make_trial(seed)
    if trial is None or not trial.faults:
        return
    of = (trial.program, trial.play, trial.loss)
    assert truths(ExplainedPlay(*of)) == truths(EveryPlay(*of))


@pytest.mark.parametrize("early", [False, True])
def test_a_file_written_before_the_end_refutes_nothing(early: bool) -> None:
    """Rank 1 stopped behind its second call of four; its file may be of before that."""
    steps = tuple(
        step for n in range(4)
        for step in (Issue("g", "all_reduce", work=f"w{n}"), Wait(f"w{n}", host=True))
    )  # fmt: skip
    program = Program("calls", {"g": Group((0, 1))}, ((steps,), (steps,)))
    play = play_with(program, (Fault("host_stop", 1, 0, 4),))
    first = play.operations[1][0].created + 0.05
    moments = (inf, first if early else inf)
    loss = Loss(moments, 10.0, rings=(2000, 2000), versions=("2.10", "2.10"))
    found = truths(ExplainedPlay(program, play, loss))
    assert found == truths(EveryPlay(program, play, loss))
    assert found[0] is early


@pytest.mark.parametrize("active_only", [True, False])
def test_other_arguments_may_be_a_stop_where_no_file_holds_those_of_the_peers(
    active_only: bool,
) -> None:
    trial = make_trial(1100031952)  # Rank 1 of three broadcasts another dtype.
    assert trial is not None and trial.fault == "dtype"
    trial = replace(trial, loss=replace(trial.loss, active_only=active_only))
    assert ("missing_rank" in trial.causes) is active_only
