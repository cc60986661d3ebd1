"""History of scenarios over several runs, as a value: a row each, by the attention it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from hanglab.harness.evaluation.measures import Rate, rate
from hanglab.harness.history.past_jobs import Circumstances, PastJob, PastJobs, PastRun
from hanglab.harness.history.stability import ScenarioState, Stability, judge_stability
from hanglab.harness.report.rates import difference

#: Runs that a trail shows.
_TRAIL = 20


class ScenarioHistory(msgspec.Struct, kw_only=True):
    """A scenario under the same circumstances, over all runs."""

    scenario: str
    variant: str
    backend: str
    launcher: str
    world_size: int
    #: Runs that it was in; one with --repeat has several of its jobs.
    runs: int
    passed: Rate
    judged: ScenarioState
    #: A sign for each of the last runs: `.` all jobs passed, `F` none, `~` some.
    trail: str
    trend: Literal["rising", "falling", "none seen"]
    first_failure: PastJob | None
    latest_failure: PastJob | None


class SuiteHistory(msgspec.Struct, kw_only=True):
    schema: Literal["hanglab.history/1"] = "hanglab.history/1"
    runs: list[PastRun]
    #: Jobs that say nothing of a scenario.
    left_out: int
    scenarios: list[ScenarioHistory]


def make_history(jobs: PastJobs) -> SuiteHistory:
    rows = [_row(key, group) for key, group in jobs.by_key.items()]
    rows.sort(key=_attention)
    return SuiteHistory(runs=jobs.runs, left_out=jobs.left_out, scenarios=rows)


def _row(key: Circumstances, jobs: Sequence[PastJob]) -> ScenarioHistory:
    failures = [job for job in jobs if not job.passed]
    by_run = [[one.passed for one in group] for _, group in groupby(jobs, lambda one: one.run)]
    return ScenarioHistory(
        **key._asdict(),
        runs=len(by_run),
        passed=_rate(jobs),
        judged=judge_stability(jobs),
        trail="".join("." if all(run) else "~" if any(run) else "F" for run in by_run)[-_TRAIL:],
        trend=_trend(jobs),
        first_failure=failures[0] if failures else None,
        latest_failure=failures[-1] if failures else None,
    )


def _rate(jobs: Iterable[PastJob]) -> Rate:
    passed = [job.passed for job in jobs]
    return rate(sum(passed), len(passed))


def _trend(jobs: Sequence[PastJob]) -> Literal["rising", "falling", "none seen"]:
    """Later half of the jobs against the earlier one, where the interval is off 0."""
    middle = len(jobs) // 2
    earlier, later = _rate(jobs[:middle]), _rate(jobs[middle:])
    low, high = difference(later.count, later.of, earlier.count, earlier.of)
    return "rising" if low > 0 else "falling" if high < 0 else "none seen"


def _attention(row: ScenarioHistory) -> tuple[int, bool, float, Circumstances]:
    states = list(Stability)
    key = Circumstances(row.scenario, row.variant, row.backend, row.launcher, row.world_size)
    recovered = row.trail.endswith(".")
    return states.index(row.judged.state), recovered, row.passed.share or 0.0, key
