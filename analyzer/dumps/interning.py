"""Turns a list of repeating values into indices and a table of the distinct ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from hanglab.analyzer.dumps.columns import Int32

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def intern(values: Sequence[H]) -> tuple[Int32, list[H]]:
    """Indices of shape ``(n,)`` into the distinct values, in order of appearance."""
    distinct = dict.fromkeys(values)
    if len(distinct) == 1:
        return np.zeros(len(values), dtype=np.int32), list(distinct)
    index = dict(zip(distinct, range(len(distinct)), strict=True))
    return np.fromiter(map(index.__getitem__, values), np.int32, len(values)), list(distinct)


def intern_as(values: Sequence[H], convert: Callable[[H], T]) -> tuple[Int32, list[T]]:
    """As :func:`intern`, of the converted values; each distinct one is converted once."""
    indices, distinct = intern(values)
    converted = [convert(value) for value in distinct]
    again, table = intern(converted)
    if len(table) == len(distinct):
        return indices, table
    return again[indices], table


def intern_equal(
    values: Sequence[Any], keys: Sequence[Hashable], content: Callable[[Any], H]
) -> tuple[Int32, list[H]]:
    """Interns values that cannot be hashed cheaply.

    ``keys`` are cheap guesses: values under one key are mostly equal, and two
    values that are equal are mostly under one key.  ``content`` gives the
    hashable form, which is made only where the guesses miss.  Comparing is
    cheap because equal values share most of their parts by identity.
    """
    table: dict[H, int] = {}
    seen: dict[Hashable, list[tuple[Any, int]]] = {}
    indices: list[int] = []
    for value, key in zip(values, keys, strict=True):
        candidates = seen.get(key)
        if candidates is None:
            candidates = seen[key] = []
        for candidate, index in candidates:
            if candidate == value:
                indices.append(index)
                break
        else:
            index = table.setdefault(content(value), len(table))
            if len(candidates) < _CANDIDATES:
                candidates.append((value, index))
            indices.append(index)
    return np.array(indices, dtype=np.int32), list(table)


_CANDIDATES = 8
