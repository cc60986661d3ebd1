"""The entries of one dump, from dictionaries to columns.

Entries of one dump nearly always have the same keys and plain values: then every
column is made by a handful of calls that run in C.  A column that does not fit
is made value by value, and nothing that it holds can raise.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from hanglab.analyzer.dumps.columns import (
    ABSENT,
    Arguments,
    Bool,
    Entries,
    Float64,
    Frame,
    GroupName,
    Int32,
    Int64,
    State,
)
from hanglab.analyzer.dumps.interning import intern, intern_equal
from hanglab.analyzer.dumps.values import as_bool, as_float, as_int, as_operation, as_text

#: Beyond these, the rest of one entry's stack, tensors or dimensions is left out.
MAX_FRAMES = 512
MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 64

_STATES = {
    "scheduled": State.SCHEDULED,
    "started": State.STARTED,
    "completed": State.COMPLETED,
}
_ARGUMENT_KEYS = ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_TEXT_KEYS = ("profiling_name", "thread_name", "thread_id", "state")
Column = Sequence[Any]


class Table:
    """Entries by column: ``table[key]`` has one value per entry, None where it is absent."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.size = len(entries)
        self._entries = entries
        self._none: Column = [None] * self.size
        self._columns: dict[str, Column] = {}
        keys = list(entries[0])
        if len(keys) > 1 and set(map(len, entries)) == {len(keys)}:
            try:
                rows = map(itemgetter(*keys), entries)
                self._columns = dict(zip(keys, zip(*rows, strict=True), strict=True))
            except KeyError:
                pass

    def __getitem__(self, key: str) -> Column:
        if self._columns:
            return self._columns.get(key, self._none)
        return [entry.get(key) for entry in self._entries]

    def has(self, key: str) -> bool:
        if self._columns:
            return key in self._columns
        return any(key in entry for entry in self._entries)


def ints(column: Column) -> Int64:
    """Integers of shape ``(n,)``; ABSENT where there is none."""
    try:
        return np.frombuffer(array("q", column), dtype=np.int64)
    except (TypeError, OverflowError):
        return np.fromiter(map(as_int, column), np.int64, len(column))


def times(column: Column, *, zero_is_absent: bool) -> Int64:
    """As :func:`ints`; the JSON form writes 0 for a time that is not known."""
    if column.count(None) == len(column):
        return np.full(len(column), ABSENT, dtype=np.int64)
    values = ints(column)
    if zero_is_absent and not values.all():
        values = np.where(values == 0, ABSENT, values)
    return values


def bools(column: Column) -> Bool:
    if set(map(type, column)) == {bool}:
        return np.frombuffer(bytes(column), dtype=np.bool_)
    return np.fromiter(map(as_bool, column), np.bool_, len(column))


def floats(column: Column) -> Float64:
    if column.count(None) == len(column):
        return np.full(len(column), np.nan)
    return np.fromiter(map(as_float, column), np.float64, len(column))


def texts(column: Column) -> Column:
    """Only text: what can be hashed without a surprise."""
    if set(map(type, column)) == {str}:
        return column
    return list(map(as_text, column))


def _pair(value: Any) -> tuple[str, str]:
    """Name and description of a process group, written as a pair or as one text."""
    if type(value) not in (tuple, list):
        return as_text(value), ""
    name = as_text(value[0]) if value else ""
    return name, as_text(value[1]) if len(value) > 1 else ""


def pairs(column: Column) -> tuple[Column, Column]:
    """Names and descriptions of process groups."""
    if set(map(type, column)) <= {tuple, list} and set(map(len, column)) == {2}:
        parts = list(chain.from_iterable(column))
        if set(map(type, parts)) == {str}:
            return parts[::2], parts[1::2]
    names, descriptions = zip(*map(_pair, column), strict=True)
    return names, descriptions


def _shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    if type(value) not in (list, tuple):
        return ()
    shapes = []
    for shape in value[:MAX_TENSORS]:
        if type(shape) in (list, tuple):
            shapes.append(tuple(map(as_int, shape[:MAX_DIMENSIONS])))
        else:
            shapes.append((as_int(shape),))
    return tuple(shapes)


def _dtypes(value: Any) -> tuple[str, ...]:
    if type(value) not in (list, tuple):
        return (as_text(value),) if type(value) is str else ()
    return tuple(map(as_text, value[:MAX_TENSORS]))


def _arguments(row: tuple[Any, ...]) -> Arguments:
    return Arguments(
        input_sizes=_shapes(row[0]),
        output_sizes=_shapes(row[1]),
        input_dtypes=_dtypes(row[2]),
        output_dtypes=_dtypes(row[3]),
    )


def _argument_keys(rows: Sequence[tuple[Any, ...]]) -> Sequence[Hashable]:
    """Something to hash for each row: equal keys mean equal arguments."""
    try:
        # marshal is the cheapest way from nested lists to bytes.
        return list(map(marshal.dumps, rows))
    except ValueError:  # nests too deeply
        return list(map(_arguments, rows))


class _Stacks:
    """Frames repeat by identity in a dump as torch writes it, and by content elsewhere."""

    def __init__(self) -> None:
        self._by_id: dict[int, Frame] = {}
        self._frames: dict[tuple[str, str, int], Frame] = {}

    def frame(self, value: Any) -> Frame:
        known = self._by_id.get(id(value))
        if known is not None:
            return known
        if type(value) is not dict:
            frame = Frame(as_text(value), "", ABSENT)
        else:
            line = as_int(value.get("line"))
            key = (as_text(value.get("name")), as_text(value.get("filename")), line)
            frame = self._frames.setdefault(key, Frame(*key))
        # The entries keep every value alive, so an id stays with its value.
        self._by_id[id(value)] = frame
        return frame

    @staticmethod
    def guess(value: Any) -> int:
        """Tells most stacks apart without walking them: their middles, by identity."""
        if type(value) is not list or not value:
            return 0
        size = len(value)
        return id(value[size >> 1]) + size

    def stack(self, value: Any) -> tuple[Frame, ...]:
        if type(value) not in (list, tuple):
            return ()
        return tuple(map(self.frame, value[:MAX_FRAMES]))


def stacks(column: Column) -> tuple[Int32, list[tuple[Frame, ...]]]:
    """Indices into the distinct stacks; ABSENT for an entry without frames."""
    if column.count(None) == len(column):
        return np.full(len(column), ABSENT, dtype=np.int32), []
    maker = _Stacks()
    indices, found = intern_equal(column, maker.guess, maker.stack)
    if () not in found:
        return indices, found
    # An entry without frames has no stack at all.
    empty = found.index(())
    indices = np.where(indices == empty, ABSENT, indices - (indices > empty)).astype(np.int32)
    return indices, [stack for stack in found if stack]


def _kinds(table: Table, descriptions: dict[str, str]) -> dict[str, Any]:
    """Columns and tables of what has few distinct values.

    A dump holds few kinds of entries, so the values are interned together, and
    only the kinds are looked at one by one.
    """
    if table.has("process_group"):
        names, descriptions_given = pairs(table["process_group"])
    else:
        names, descriptions_given = list(map(as_text, table["pg_id"])), [""] * table.size
    given = list(zip(*map(table.__getitem__, _ARGUMENT_KEYS), strict=True))
    plain = (texts(table[key]) for key in _TEXT_KEYS)
    rows = zip(_argument_keys(given), names, descriptions_given, *plain, strict=True)
    of_row, kinds = intern(list(rows))
    first = np.zeros(len(kinds), dtype=np.int64)
    first[of_row[::-1]] = np.arange(table.size - 1, -1, -1)  # of equal indices the last one counts

    made: dict[Hashable, Arguments] = {}
    for kind, row in zip(kinds, first.tolist(), strict=True):
        if kind[0] not in made:
            made[kind[0]] = _arguments(given[row])
    columns: dict[str, Any] = {}
    for column, where, values in (
        ("argument", "arguments", [made[kind[0]] for kind in kinds]),
        ("group", "group_names", [_group_name(kind[1], kind[2], descriptions) for kind in kinds]),
        ("operation", "operations", [as_operation(as_text(kind[3])) for kind in kinds]),
        ("thread", "threads", [as_text(f"{kind[4]} {kind[5]}".strip()) for kind in kinds]),
    ):
        indices, columns[where] = intern(values)
        columns[column] = indices[of_row]
    states = [_STATES.get(kind[6], State.UNKNOWN) for kind in kinds]
    columns["state"] = np.array(states, dtype=np.int8)[of_row]
    return columns


def _group_name(name: str, description: str, descriptions: dict[str, str]) -> GroupName:
    name = as_text(name)
    return GroupName(name, as_text(description) or descriptions.get(name, ""))


def read_entries(
    entries: list[dict[str, Any]], descriptions: dict[str, str], *, from_json: bool
) -> Entries:
    """Columns of ``entries`` (at least one), oldest first."""
    table = Table(entries)
    columns: dict[str, Any] = {}
    simple: dict[str, tuple[str, Callable[[Column], Any]]] = {
        "pg_id": ("pg_id", ints),
        "p2p_seq": ("p2p_seq_id", ints),
        "op_id": ("op_id", ints),
        "retired": ("retired", bools),
        "timeout_ms": ("timeout_ms", ints),
        "duration_ms": ("duration_ms", floats),
    }
    for name, (key, convert) in simple.items():
        columns[name] = convert(table[key])
    for name, key in (
        ("created_ns", "time_created_ns"),
        ("started_ns", "time_discovered_started_ns"),
        ("completed_ns", "time_discovered_completed_ns"),
    ):
        columns[name] = times(table[key], zero_is_absent=from_json)
    # Before 2.1 there was one number for both kinds of operation.
    columns["seq"] = ints(
        table["collective_seq_id" if table.has("collective_seq_id") else "seq_id"]
    )
    columns["record_id"] = ints(table["record_id"])
    columns.update(_kinds(table, descriptions))
    columns["stack"], columns["stacks"] = stacks(table["frames"])
    if table.has("is_p2p"):
        columns["is_p2p"] = bools(table["is_p2p"])
    else:
        p2p = [operation.op in ("send", "recv") for operation in columns["operations"]]
        columns["is_p2p"] = np.array(p2p, dtype=np.bool_)[columns["operation"]]
    _sort(columns)
    return Entries(**columns)


def _sort(columns: dict[str, Any]) -> None:
    """Oldest first: torch writes them so, other tools may not."""
    record = columns["record_id"]
    if (record[1:] < record[:-1]).any() and (record != ABSENT).all():
        order = np.argsort(record, kind="stable")
        for name, column in columns.items():
            if isinstance(column, np.ndarray):
                columns[name] = column[order]
