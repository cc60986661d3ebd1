"""What is said below receipts of traces that did not begin together."""

from __future__ import annotations

import pytest

from hanglab.harness.report.trace_receipts import note_on_starts
from hanglab.recorder.profiling.trace_records import Receipt
from hanglab.recorder.profiling.traces import TOLERANCE_MS


def traced(rank: int, first_ms: float, host: str = "a") -> Receipt:
    """A trace of 100 ms."""
    return Receipt(
        host=host, pid=rank + 1, rank=rank, state="valid", first_ms=first_ms, last_ms=first_ms + 100
    )


APART = TOLERANCE_MS + 200


@pytest.mark.parametrize(
    ("receipts", "by_iterations", "said"),
    [
        ([traced(0, 0), traced(1, 50)], True, ""),
        ([traced(0, 0), traced(1, APART)], True, "not the same iterations"),
        ([traced(0, 0), traced(1, APART)], False, "look at absolute times"),
        # Clocks of two hosts need not agree.
        ([traced(0, 0), traced(1, APART, "b")], True, "look at absolute times"),
    ],
)
def test_traces_of_different_iterations_are_told(
    receipts: list[Receipt], by_iterations: bool, said: str
) -> None:
    note = note_on_starts(receipts, by_iterations)
    assert said in note
    assert bool(said) == bool(note)
    assert ("not the same iterations" in note) == ("iterations" in said)
