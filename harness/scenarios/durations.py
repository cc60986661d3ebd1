"""Durations of the scenarios that come with hanglab, as they were measured."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from hanglab.harness.scenarios.declaration import Scenario
from hanglab.harness.scenarios.discovery import project_folder

#: About the mean of those that were measured.
UNMEASURED_S = 7.0


def table_path() -> Path:
    return project_folder() / "durations.json"


@cache
def measured_seconds() -> dict[str, float]:
    """Seconds that a fault and its control take together on two cores, by scenario."""
    return msgspec.json.decode(table_path().read_bytes(), type=dict[str, float])


def expected_seconds(scenario: Scenario) -> float:
    """Seconds that a fault and its control may take; a guess for users' own scenarios."""
    if not scenario.source.is_relative_to(project_folder()):
        return UNMEASURED_S
    return measured_seconds().get(scenario.name, UNMEASURED_S)


__all__ = ["UNMEASURED_S", "expected_seconds", "measured_seconds", "table_path"]
