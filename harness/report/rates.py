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


def pass_rate(passed: int, trials: int) -> str:
    """Rate in words, such as ``9 of 10 passed, 90 % (95 % interval 60 to 98 %)``."""
    low, high = wilson(passed, trials)
    return (
        f"{passed} of {trials} passed, {100 * passed / trials:.0f} % "
        f"(95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
    )
