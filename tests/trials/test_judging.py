"""Verdicts on played programs: none may accuse an innocent rank."""

from __future__ import annotations

import pytest

from tests.trials.judging import describe, try_seed

STOPPED_DEVICE = (
    "a stopped device of a group may have been crossed with another, and is told as that"
)


@pytest.mark.parametrize(
    "seed",
    [
        *range(5),
        8,
        63,
        202,
        1302,
        *(
            pytest.param(seed, marks=pytest.mark.xfail(strict=True, reason=STOPPED_DEVICE))
            for seed in (100, 1237)
        ),
    ],
)
def test_no_verdict_is_wrong(seed: int) -> None:
    result = try_seed(seed)
    if result is None:
        pytest.skip("the fault of this seed does no harm")
    assert result[2] != "wrong", describe(*result)
