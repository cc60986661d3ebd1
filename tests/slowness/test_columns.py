"""Windows summed up all at once come to what they come to one by one."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from hanglab.recorder.slowness import Summary, summarize
from hanglab.recorder.slowness.column_summaries import (
    no_summaries,
    row_of,
    statistics_of,
    summarize_all,
    summary_of,
)

COUNTS = [1, 2, 3, 4, 5, 7, 19, 20, 21, 23, 38, 39, 40, 41, 43, 50, 99, 100, 101, 257]


def same(found: Summary | None, expected: Summary | None) -> None:
    if found is None or expected is None or sys.version_info < (3, 12):
        assert found == expected
        return
    # From 3.12 on Python's sum is more exact than adding up: by a bit in the last place.
    for one, other in zip(found, expected, strict=True):
        assert one == (other if other is None else pytest.approx(other, rel=1e-12, abs=1e-12))


def summaries(windows: Sequence[Sequence[float]], **options: Any) -> list[Summary | None]:
    return [summary_of(row) for row in summarize_all(windows, **options).tolist()]


def timings(generator: random.Random, count: int) -> list[float]:
    """Noisy, in some windows with stalls, in some with much the same values."""
    noise, stalls = generator.choice([0.0, 0.1, 3.0]), generator.choice([0.0, 0.1])
    return [
        max(0.0, generator.gauss(10, noise)) + (generator.random() < stalls) * 80.0
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", COUNTS)
def test_windows_of_one_length(count: int) -> None:
    generator = random.Random(count)
    windows = [timings(generator, count) for _ in range(30)]
    for found, window in zip(summaries(windows), windows, strict=True):
        same(found, summarize(window))


@pytest.mark.parametrize("seed", range(20))
def test_windows_of_any_length_few_and_many_none_and_empty(seed: int) -> None:
    generator = random.Random(seed)
    windows = [
        timings(generator, generator.choice([0, 1, 50, 50, 50, 51, 60]))
        for _ in range(generator.choice([0, 1, 5, 60]))
    ]
    found = summaries(windows)
    assert len(found) == len(windows)
    for summary, window in zip(found, windows, strict=True):
        same(summary, summarize(window))


def test_nanoseconds() -> None:
    generator = random.Random(0)
    windows = [[generator.randrange(10**8) for _ in range(50)] for _ in range(20)]
    for found, window in zip(summaries(windows, unit=1e6), windows, strict=True):
        same(found, summarize([ns / 1e6 for ns in window]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", [math.nan, -1.0, math.inf])
def test_what_is_no_time_is_left_out(wrong: float) -> None:
    generator = random.Random(1)
    windows = [timings(generator, 50) for _ in range(20)]
    windows[3][7] = windows[11][0] = wrong
    windows[5] = [wrong] * 50
    found = summaries(windows)
    for summary, window in zip(found, windows, strict=True):
        same(summary, summarize(window))
    assert found[5] is None and found[3] is not None and found[3].count == 49


@pytest.mark.parametrize("count", COUNTS)
def test_a_summary_goes_into_a_row_and_out_again(count: int) -> None:
    summary = summarize(timings(random.Random(count), count))
    assert summary is not None
    assert summary_of(row_of(summary)) == summary
    assert statistics_of(row_of(summary)) == summary.statistics()


def test_no_summary_is_a_row_too() -> None:
    assert summary_of(row_of(None)) is None
    assert [summary_of(row) for row in no_summaries(2).tolist()] == [None, None]
