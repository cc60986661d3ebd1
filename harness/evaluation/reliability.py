"""Reliability of probabilities: how often what was given a probability was right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec


class Bin(msgspec.Struct, frozen=True):
    """Observations that were given about the same probability."""

    count: int
    predicted: float
    right: float


def brier(predicted: Sequence[float], right: Sequence[float]) -> float:
    """Mean squared difference of probability and truth (Brier, 1950); 0 is best."""
    return sum((p - r) ** 2 for p, r in zip(predicted, right, strict=True)) / len(predicted)


def reliability(predicted: Sequence[float], right: Sequence[float], bins: int = 10) -> list[Bin]:
    """Bins of equal width over 0 to 1, those without an observation left out."""
    members: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for p, r in zip(predicted, right, strict=True):
        members[min(int(p * bins), bins - 1)].append((p, r))
    return [
        Bin(len(pairs), _mean(pairs, lambda pair: pair[0]), _mean(pairs, lambda pair: pair[1]))
        for _, pairs in sorted(members.items())
    ]


def _mean(
    pairs: Sequence[tuple[float, float]], value: Callable[[tuple[float, float]], float]
) -> float:
    return sum(map(value, pairs)) / len(pairs)
