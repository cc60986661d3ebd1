"""A sample of scenarios for a first look: the fastest few of each category."""

from __future__ import annotations

from collections.abc import Iterable

from hanglab.harness.jobs.plan import Options, refusal_of, requests_of
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.durations import expected_seconds

#: Scenarios of each category.
SAMPLE_SIZE = 2


def quick_sample(scenarios: Iterable[Scenario], options: Options) -> list[Scenario]:
    """The fastest of each category that can run here.

    A category of which none can is there with one of them, so that the run
    gives the reason.
    """
    categories: dict[str | None, list[Scenario]] = {}
    for scenario in sorted(scenarios, key=expected_seconds):
        categories.setdefault(scenario.category, []).append(scenario)
    chosen: list[Scenario] = []
    for members in categories.values():
        able = [one for one in members if refusal_of(one, requests_of(one, options)[0]) is None]
        chosen += able[:SAMPLE_SIZE] or members[:1]
    return chosen


__all__ = ["SAMPLE_SIZE", "quick_sample"]
