"""Ends that a scheduler brought about, told apart from those of the job's own."""

from __future__ import annotations

import signal

import pytest

from hanglab.analyzer.facts.scheduler import by_scheduler, told_why
from hanglab.recorder.case.records import Clock, Exit, SchedulerRecord

S = 1_000_000_000
ASKED = 100 * S


def record(state: str = "TIMEOUT", asked: bool = True) -> SchedulerRecord:
    moment = Clock(ASKED, 0)
    return SchedulerRecord(moment, "slurm", "7", state, asked_to_end=moment if asked else None)


@pytest.mark.parametrize(
    ("after_s", "code", "number", "expected"),
    [
        (0.1, None, signal.SIGTERM, True),
        # The message of it comes later than the signal itself.
        (-0.3, None, signal.SIGTERM, True),
        (5.0, None, signal.SIGKILL, True),
        (5.0, 1, None, True),
        # What failed before anybody asked did so by itself, maybe the reason for the asking.
        (-0.3, 1, None, False),
        (-0.3, None, signal.SIGSEGV, False),
        (-5.0, None, signal.SIGTERM, False),
    ],
)
def test_ends_are_the_schedulers_from_its_asking_on(
    after_s: float, code: int | None, number: int | None, expected: bool
) -> None:
    end = Exit(Clock(int(ASKED + after_s * S), 0), code, number)
    assert by_scheduler(end, record()) is expected
    assert not by_scheduler(end, record(asked=False))
    assert not by_scheduler(end, None)


@pytest.mark.parametrize("state", ["FAILED", "COMPLETED"])
def test_a_job_that_ended_as_its_command_did_was_ended_by_nobody(state: str) -> None:
    """Slurm ends agents then, which is what they noted."""
    end = Exit(Clock(ASKED, 0), None, signal.SIGKILL)
    assert not by_scheduler(end, record(state))


def test_the_reason_is_told_where_it_is_known() -> None:
    assert told_why(record())[0] == "Slurm ended the job at its time limit"
    assert told_why(record("COMPLETING"))[0] == "Slurm ended the job and does not say why"
