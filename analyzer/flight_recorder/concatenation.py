"""Entries of several sources in one set of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    TABLES,
    Entries,
    Int32,
    Int64,
)

_KINDS = {
    "state": np.int8,
    "retired": np.bool_,
    "is_p2p": np.bool_,
    "duration_ms": np.float64,
} | dict.fromkeys(TABLES, np.int32)
_COLUMNS = tuple(one.name for one in fields(Entries) if one.name not in TABLES.values())


def concatenated(parts: Sequence[Entries]) -> Entries:
    """Entries of one part after those of the other; each value stands in its table once."""
    joined: dict[str, Any] = {}
    for name in _COLUMNS:
        columns = [getattr(part, name) for part in parts]
        table = TABLES.get(name)
        if table is not None:
            places: dict[Any, int] = {}
            tables = [getattr(part, table) for part in parts]
            columns = [_moved(*one, places) for one in zip(columns, tables, strict=True)]
            joined[table] = list(places)
        joined[name] = (
            np.concatenate(columns) if columns else np.zeros(0, _KINDS.get(name, np.int64))
        )
    return Entries(**joined)


def _moved(column: Int32, values: Sequence[Any], places: dict[Any, int]) -> Int32:
    """Indices into ``values`` as such into ``places``, which gets what it lacks."""
    numbers = [places.setdefault(value, len(places)) for value in values]
    # One more at the end: ABSENT stays ABSENT.
    return np.array([*numbers, ABSENT], dtype=np.int32)[column]


def reordered(entries: Entries, order: Int64) -> Entries:
    """The entries in another order, and values of each table in the order of their first use.

    Values that no entry has are left out.
    """
    changed: dict[str, Any] = {}
    for name in _COLUMNS:
        column = getattr(entries, name)[order]
        table = TABLES.get(name)
        if table is not None:
            used = [number for number in dict.fromkeys(column.tolist()) if number != ABSENT]
            places = np.full(len(getattr(entries, table)) + 1, ABSENT, dtype=np.int32)
            places[used] = np.arange(len(used))
            changed[table] = [getattr(entries, table)[number] for number in used]
            column = places[column]
        changed[name] = column
    return Entries(**changed)
