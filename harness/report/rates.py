"""Rates out of few trials, with the interval that they allow."""

from __future__ import annotations

import math

#: Two-sided 95 %.
_Z = 1.959964


def wilson(passed: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion (E. B. Wilson, 1927, JASA 22, 209 to 212).

    Unlike the usual one it has sense for few trials and for rates of 0 and 1.
    """
    if not trials:
        return 0.0, 1.0
    rate, squared = passed / trials, _Z * _Z
    scale = 1 + squared / trials
    middle = rate + squared / (2 * trials)
    spread = _Z * math.sqrt(rate * (1 - rate) / trials + squared / (4 * trials * trials))
    low = (middle - spread) / scale if passed else 0.0
    high = (middle + spread) / scale if passed < trials else 1.0
    return low, high


def difference(
    passed: int, trials: int, passed_before: int, trials_before: int
) -> tuple[float, float]:
    """Newcombe's 95 % interval of the difference of two rates, of trials each of its own.

    Of Wilson's intervals (R. G. Newcombe, 1998, Statistics in Medicine 17, 873 to 890, method
    10).  -1 to 1 where either has no trial.
    """
    if not trials or not trials_before:
        return -1.0, 1.0
    rate, before = passed / trials, passed_before / trials_before
    low, high = wilson(passed, trials)
    low_before, high_before = wilson(passed_before, trials_before)
    found = rate - before
    return (
        found - math.hypot(rate - low, high_before - before),
        found + math.hypot(high - rate, before - low_before),
    )


def pass_rate(passed: int, trials: int) -> str:
    """Rate in words, such as ``9 of 10 passed, 90 % (95 % interval 60 to 98 %)``."""
    low, high = wilson(passed, trials)
    return (
        f"{passed} of {trials} passed, {100 * passed / trials:.0f} % "
        f"(95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
    )
