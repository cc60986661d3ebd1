"""What is known of the processes that ask an agent for work."""

from __future__ import annotations

import os

import pytest

from hanglab.recorder.profiling.fabric import ACTIVITIES, FabricRequest
from hanglab.recorder.profiling.registry import DEFAULT_PERIOD_S, Registry


@pytest.mark.parametrize(
    ("pauses", "period_s"),
    [
        ([], DEFAULT_PERIOD_S),
        ([1.0, 1.0, 1.0], 1.0),
        # As on a crowded host; and a job that stood still for a minute.
        ([1.0, 2.5, 1.0, 1.1], 2.5),
        ([1.0, 60.0, 1.0], 6.0),
    ],
)
def test_a_process_is_expected_within_the_longest_of_its_pauses(
    pauses: list[float], period_s: float
) -> None:
    registry = Registry()
    request = FabricRequest(ACTIVITIES, 0, (os.getpid(),))
    now = 100.0
    client = registry.heard("a", os.getpid(), request, now)
    for pause in pauses:
        now += pause
        client = registry.heard("a", os.getpid(), request, now)
    assert client is not None
    assert client.period_s == pytest.approx(period_s)
