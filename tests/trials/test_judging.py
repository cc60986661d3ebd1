"""Verdicts on played programs: none may accuse an innocent rank."""

from __future__ import annotations

import pytest

from tests.trials.judging import describe, try_seed

STOPPED_DEVICE = "a stopped device is taken for ranks that wait for each other"


@pytest.mark.parametrize(
    "seed",
    [
        *range(5),
        8,
        202,
        *(
            pytest.param(seed, marks=pytest.mark.xfail(strict=True, reason=STOPPED_DEVICE))
            for seed in (63, 100)
        ),
    ],
)
def test_no_verdict_is_wrong(seed: int) -> None:
    result = try_seed(seed)
    if result is None:
        pytest.skip("the fault of this seed does no harm")
    assert result[2] != "wrong", describe(*result)
