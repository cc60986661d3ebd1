"""Delta debugging: the few of many items that suffice for a failure.

Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28 (2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def ddmin(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A sublist of ``items``, in their order, that fails, and of which no single item can go.

    ``items`` themselves are taken to fail.  A test is asked about no sublist twice.
    """
    known: dict[tuple[int, ...], bool] = {}

    def test(kept: Sequence[int]) -> bool:
        key = tuple(kept)
        if key not in known:
            known[key] = fails([items[place] for place in key])
        return known[key]

    left = list(range(len(items)))
    if left and test([]):
        return []
    parts = 2
    while len(left) >= 2:
        chunks = _split(left, parts)
        smaller = next((chunk for chunk in chunks if test(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        others = ([place for place in left if place not in set(chunk)] for chunk in chunks)
        smaller = next((rest for rest in others if test(rest)), None) if parts > 2 else None
        if smaller is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif parts < len(left):
            parts = min(len(left), 2 * parts)
        else:
            break
    return [items[place] for place in left]


def _split(items: list[int], parts: int) -> list[list[int]]:
    """Parts of nearly equal length, none of them empty."""
    bounds = [len(items) * n // parts for n in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(bounds) if b > a]
