"""Stability of a scenario by its interval: each state, and the numbers that it takes."""

from __future__ import annotations

import datetime
from itertools import permutations
from math import comb

import pytest

from hanglab.harness.history.past_jobs import CodeVersion, PastJob, PastRun
from hanglab.harness.history.stability import CHANCE, Stability, judge_stability
from hanglab.harness.jobs.outcome import Outcome

DAY = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)


def jobs_of(*runs: str) -> list[PastJob]:
    """Jobs of runs such as ``v1:PPF``: their code, and how each of their jobs came out."""
    found = []
    for day, run in enumerate(runs):
        version, _, outcomes = run.rpartition(":")
        name = PastRun(DAY + datetime.timedelta(days=day), f"runs/{day}")
        code = CodeVersion(version or "v1", None, "s") if version != "unknown" else None
        for letter in outcomes:
            outcome = Outcome.PASS if letter == "P" else Outcome.WRONG_VERDICT
            found.append(PastJob(name, letter == "P", outcome, "", None, code))
    return found


@pytest.mark.parametrize(
    "runs, state",
    [
        ("P", Stability.NO_FAILURES),
        ("F", Stability.TOO_FEW),
        ("FFF", Stability.TOO_FEW),
        ("FFFF", Stability.ALWAYS_FAILS),
        # One of each proves as little as many of the one and one of the other.
        ("PF", Stability.TOO_FEW),
        ("PPFPPPP", Stability.TOO_FEW),
        ("PFPF", Stability.FLAKY),
        ("PFPPPFPPPP", Stability.FLAKY),
        ("P" * 6 + "FF" + "P" * 3, Stability.FLAKY),
        # The interval of 10 of 12 begins at 55 %, and ends above 95 %.
        ("P" * 6 + "FF" + "P" * 4, Stability.TOO_FEW),
        ("P" * 60 + "F" + "P" * 60, Stability.FAILS_RARELY),
        ("F" * 60 + "P" + "F" * 60, Stability.PASSES_RARELY),
        # Two outcomes apart in time: of four and four in no order, 2 of 70 lie so.
        ("PPPPFFFF", Stability.FAILS_SINCE),
        ("FFFFPPPP", Stability.PASSES_SINCE),
        ("PPPFFF", Stability.FLAKY),
        ("P" * 20 + "F", Stability.TOO_FEW),
        ("P" * 20 + "FF", Stability.FAILS_SINCE),
    ],
)
def test_runs_of_one_job_each(runs: str, state: Stability) -> None:
    assert judge_stability(jobs_of(*runs)).state is state


@pytest.mark.parametrize(
    "runs, state, since",
    [
        # The code is another one: what came before does not count.
        (["v1:PFPF", "v2:PP"], Stability.FLAKY, None),
        (["v1:PFPF", "v2:PPPP"], Stability.PASSES_SINCE, 1),
        (["v1:PFPF", "v2:FFFF"], Stability.FAILS_SINCE, 1),
        (["v2:FF", "v1:PFPF", "v2:FF"], Stability.ALWAYS_FAILS, None),
        (["v1:PFFF", "v2:PPPF", "v3:P"], Stability.TOO_FEW, None),
        (["v1:PPPPP", "v2:PF"], Stability.TOO_FEW, None),
        (["v1:P", "v2:F", "v3:P", "v4:F"], Stability.TOO_FEW, None),
        (["unknown:PFPFPF"], Stability.TOO_FEW, None),
        (["unknown:PPPPP", "v1:FFFFF"], Stability.FAILS_SINCE, 1),
        # A run with both outcomes is no change, however they lie in it.
        (["PPPPFFFF"], Stability.FLAKY, None),
        (["PPPPPPPP", "FFFFFFFF", "P"], Stability.FLAKY, None),
        (["PPPPPPPP", "FFFFFFFF"], Stability.FAILS_SINCE, 1),
    ],
)
def test_versions_and_repetitions(runs: list[str], state: Stability, since: int | None) -> None:
    found = judge_stability(jobs_of(*runs))
    assert found.state is state
    assert (found.since.folder if found.since else None) == (
        f"runs/{since}" if since is not None else None
    )


@pytest.mark.parametrize("newer, changed", [("v1", False), ("v2", True), ("unknown", None)])
def test_a_change_tells_if_the_code_changed(newer: str, changed: bool | None) -> None:
    found = judge_stability(jobs_of(*["v1:P"] * 5, *[f"{newer}:F"] * 5))
    assert found.state is Stability.FAILS_SINCE
    assert found.code_changed is changed


def test_a_sound_scenario_with_an_accident_is_rarely_called_flaky() -> None:
    rate = 0.01
    for count in range(2, 60):
        called = sum(
            comb(count, failed) * rate**failed * (1 - rate) ** (count - failed)
            for failed in range(1, count)
            # In turns, so that no order says anything.
            if judge_stability(jobs_of(_spread(failed, count))).state is Stability.FLAKY
        )
        assert called <= 0.0052, count


def _spread(failed: int, count: int) -> str:
    """All in one run, where their order is none."""
    return "F" * failed + "P" * (count - failed)


def test_outcomes_in_no_order_are_rarely_called_a_change() -> None:
    for failed in range(1, 7):
        orders = set(permutations("F" * failed + "P" * (7 - failed)))
        changed = [
            order
            for order in orders
            if judge_stability(jobs_of(*order)).state
            in (Stability.FAILS_SINCE, Stability.PASSES_SINCE)
        ]
        assert len(changed) <= CHANCE * len(orders)
