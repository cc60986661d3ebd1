"""Turns a list of repeating values into indices and a table of the distinct ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, TypeVar

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Int32

#: Values that are compared before the hashable form is made.
_CANDIDATES = 8

H = TypeVar("H", bound=Hashable)


def intern(values: Sequence[H]) -> tuple[Int32, list[H]]:
    """Indices of shape ``(n,)`` into the distinct values, in order of appearance."""
    # A missing value gets the next number; so each value is hashed once only.
    index: defaultdict[H, int] = defaultdict(count().__next__)
    indices = np.fromiter(map(index.__getitem__, values), np.int32, len(values))
    return indices, list(index)


def intern_equal(
    values: Sequence[Any], guess: Callable[[Any], int], content: Callable[[Any], H]
) -> tuple[Int32, list[H]]:
    """Interns values that cannot be hashed cheaply.

    ``guess`` is cheap: values of one guess are mostly equal, and two values that
    are equal mostly have one guess.  ``content`` gives the hashable form, which
    is made only where the guesses miss.  Comparing is cheap because equal values
    share most of their parts by identity.
    """
    table: defaultdict[H, int] = defaultdict(count().__next__)
    seen: dict[int, list[tuple[Any, int]]] = {}
    indices: list[int] = []
    for value in values:
        key = guess(value)
        candidates = seen.get(key)
        if candidates is None:
            candidates = seen[key] = []
        for candidate, index in candidates:
            if candidate == value:
                indices.append(index)
                break
        else:
            index = table[content(value)]
            if len(candidates) < _CANDIDATES:
                candidates.append((value, index))
            indices.append(index)
    return np.array(indices, dtype=np.int32), list(table)
