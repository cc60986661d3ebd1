"""The difference of two clocks, bounded by answers."""

from __future__ import annotations

import pytest

from hanglab.recorder.profiling.clock_offset import ClockAnswer, offset_ms


def heard(there: float, back: float, offset: float) -> ClockAnswer:
    """An answer that took so long there and so long back, between clocks that differ so much."""
    return ClockAnswer(
        before_ms=1_000.0, after_ms=1_000.0 + there + back, theirs_ms=1_000 + there + offset
    )


def test_a_long_way_back_moves_no_clock_that_agrees() -> None:
    assert offset_ms([heard(1, 250, 0)]) == 0.0


@pytest.mark.parametrize("offset", [-3_600_000.0, -40.0, 40.0, 3_600_000.0])
def test_the_quickest_answers_bound_a_clock_that_differs(offset: float) -> None:
    found = offset_ms([heard(300, 1, offset), heard(2, 200, offset), heard(90, 90, offset)])
    assert found == pytest.approx(offset, abs=2)
