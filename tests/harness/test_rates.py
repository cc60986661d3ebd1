"""Wilson's interval against the literature and its own definition; Markdown that stays whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanglab.harness.report.markdown import JobRow, markdown
from hanglab.harness.report.rates import difference, pass_rate, wilson


@pytest.mark.parametrize(
    "passed, trials, low, high",
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), 857 to 872, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_that_of_the_literature(
    passed: int, trials: int, low: float, high: float
) -> None:
    assert wilson(passed, trials) == pytest.approx((low, high), abs=5e-5)


@settings(deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_ends_are_as_far_from_the_rate_as_their_own_deviation_allows(
    case: tuple[int, int],
) -> None:
    passed, trials = case
    low, high = wilson(passed, trials)
    assert 0 <= low <= passed / trials <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            distance = (passed / trials - end) ** 2
            assert distance == pytest.approx(1.959964**2 * end * (1 - end) / trials, rel=1e-6)


@pytest.mark.parametrize(
    "case, low, high",
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), 873 to 890, table II, method 10.
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((10, 10, 0, 20), 0.6791, 1.0),
        ((0, 0, 3, 4), -1.0, 1.0),
    ],
)
def test_the_interval_of_a_difference_is_that_of_the_literature(
    case: tuple[int, int, int, int], low: float, high: float
) -> None:
    assert difference(*case) == pytest.approx((low, high), abs=5e-5)


def test_a_rate_is_told_with_its_interval() -> None:
    assert pass_rate(9, 10) == "9 of 10 passed, 90 % (95 % interval 60 to 98 %)"


def test_text_from_outside_cannot_break_the_page() -> None:
    reason = "a|b\n<script>`x`\\"
    row = JobRow("s", "fault", "gloo", "0", "hung", "", "", "harness error", reason, 1.0, "")
    (line,) = [line for line in markdown([row]).splitlines() if "script" in line]
    assert "<script>" not in line
    assert line.replace("\\|", "").count("|") == 6
