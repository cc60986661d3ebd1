"""What faults cost that only cost time, and when that is no more than chance."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.harness.mutation.judgement import Fate, judge
from hanglab.harness.mutation.mutant import Mutant
from hanglab.harness.mutation.observation import End, JobObservation
from hanglab.harness.mutation.operator import Operator
from hanglab.harness.mutation.pace import COST, chance_share, cost_share
from hanglab.harness.mutation.support import mutation_values
from hanglab.harness.mutation.truth import FaultEffect, truth


def test_a_rank_keeps_what_its_fault_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGLAB_MUTATION_TRUTH", str(tmp_path))
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setattr(sys, "argv", ["/x/m001_stall.py"])
    monkeypatch.setattr(mutation_values, "_costs", [])
    clock = [100.0]
    monkeypatch.setattr(mutation_values, "now", lambda: clock[0])
    assert mutation_values.cost(0.25) == 0.25
    clock[0] = 103.0
    assert mutation_values.end_of_slowness(102.0, 0.5) == 103.5
    kept = COST.unpack((tmp_path / "m001_stall.2.cost").read_bytes()[: COST.size])
    # The last of it is over half a second after the last strike.
    assert kept == (0.75, 100.0, 103.5)


def test_without_anybody_who_asks_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HANGLAB_MUTATION_TRUTH", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mutation_values, "_costs", [])
    assert mutation_values.cost(0.25) == 0.25
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "share"),
    [
        (COST.pack(1.5, 100.0, 110.0), 0.15),
        (COST.pack(1.5, 100.0, 100.0), None),
        (b"", None),
    ],
)
def test_the_share_is_of_the_time_from_the_first_strike_to_the_last(
    tmp_path: Path, content: bytes, share: float | None
) -> None:
    kept = tmp_path / "m.0.cost"
    kept.write_bytes(content)
    assert cost_share(kept) == share
    assert cost_share(tmp_path / "none") is None


def test_a_folder_without_a_case_tells_no_chance(tmp_path: Path) -> None:
    assert chance_share(tmp_path) == 0.0


HEALTHY = Verdict(status=Status.HEALTHY)
SLOW = Verdict(status=Status.SLOW, cause=Cause.SLOW_COMPUTE, culprits=[1])


@pytest.mark.parametrize("verdict", [HEALTHY, SLOW])
@pytest.mark.parametrize(
    ("cost", "chance", "struck"),
    [(0.02, 0.05, False), (0.05, 0.05, False), (0.06, 0.05, True), (None, 0.05, True)],
)
def test_what_costs_no_more_than_chance_has_not_struck_whatever_the_verdict(
    verdict: Verdict, cost: float | None, chance: float, struck: bool
) -> None:
    slow = truth([Cause.SLOW_COMPUTE], [1], effect=FaultEffect.SLOWS)
    operator = Operator("slow", "slow", lambda target: ())
    mutant = Mutant("m001", operator, Path("m001.py"), 10, 10, 1, slow, "it is slow")
    seen = replace(JobObservation(End.WELL, [1], [], {}), cost_share=cost)
    judged = judge(mutant, verdict, seen, chance_share=chance)
    assert (judged.fate is not Fate.NOT_STRUCK) is struck
    assert bool(judged.reason) is not struck
    # A fault that stops the job has struck where its line ran.
    stopping = replace(mutant, truth=truth([Cause.SKIPPED_COLLECTIVE], [1]))
    assert judge(stopping, SLOW, seen, chance_share=chance).fate is Fate.MISSED
