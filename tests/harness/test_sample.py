"""The sample of ``--quick``, and the table of durations that it is chosen by."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hanglab.harness.jobs.plan import Options
from hanglab.harness.jobs.sample import SAMPLE_SIZE, quick_sample
from hanglab.harness.scenarios import discovery
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.durations import (
    UNMEASURED_S,
    expected_seconds,
    measured_seconds,
)

PROJECT = discovery.read_project().scenarios
CORES = 2
LONGEST_S = 60.0


def scenario(name: str) -> Scenario:
    return next(one for one in PROJECT if one.name == name)


def test_the_table_of_durations_knows_no_scenario_that_is_gone() -> None:
    assert set(measured_seconds()) <= {one.name for one in PROJECT}


def test_every_category_is_sampled_in_less_than_a_minute() -> None:
    sample = quick_sample(PROJECT, Options())
    counts = Counter(one.category for one in sample)
    assert set(counts) == {one.category for one in PROJECT}
    assert max(counts.values()) <= SAMPLE_SIZE
    assert sum(map(expected_seconds, sample)) / CORES < LONGEST_S


def test_the_fastest_that_can_run_are_chosen() -> None:
    slow, fast = scenario("collective_mismatch"), scenario("size_mismatch")
    third = scenario("group_creation")
    assert expected_seconds(fast) < expected_seconds(third) < expected_seconds(slow)
    assert quick_sample([slow, third, fast], Options()) == [fast, third]
    barred = replace(fast, backends=("nccl",))
    assert quick_sample([slow, third, barred], Options()) == [third, slow]


def test_a_category_that_cannot_run_gives_its_reason_once() -> None:
    barred = [replace(one, backends=("nccl",)) for one in PROJECT if one.category == "straggler"]
    assert len(quick_sample(barred, Options())) == 1


def test_a_users_scenario_of_the_same_name_has_no_figure() -> None:
    own = replace(scenario("size_mismatch"), source=discovery.project_folder().parent / "own.py")
    assert expected_seconds(own) == UNMEASURED_S
