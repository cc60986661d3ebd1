"""The entries of one dump, from dictionaries to columns.

Entries of one dump nearly always have the same keys and plain values: then every
column is made by a handful of calls that run in C.  A column that does not fit
is made value by value, and nothing that it holds can raise.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Callable, Sequence
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
from hanglab.analyzer.dumps.interning import intern, intern_as, intern_equal
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
    if set(map(type, column)) == {str} and max(map(len, column)) < 2000:
        return column
    return list(map(as_text, column))


def pairs(column: Column) -> tuple[Column, Column]:
    """Names and descriptions of process groups, written as a pair or as one text."""
    if set(map(type, column)) <= {tuple, list} and set(map(len, column)) == {2}:
        names, descriptions = zip(*column, strict=True)
        return texts(names), texts(descriptions)
    names_, descriptions_ = [], []
    for value in column:
        if type(value) in (tuple, list):
            names_.append(as_text(value[0]) if value else "")
            descriptions_.append(as_text(value[1]) if len(value) > 1 else "")
        else:
            names_.append(as_text(value))
            descriptions_.append("")
    return names_, descriptions_


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


def arguments(table: Table) -> tuple[Int32, list[Arguments]]:
    columns = [
        table[key] for key in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
    ]
    rows = list(zip(*columns, strict=True))
    try:
        # Equal bytes mean equal arguments, and marshal is the cheapest way to bytes.
        keys: list[bytes] = list(map(marshal.dumps, rows))
    except ValueError:
        return intern(list(map(_arguments, rows)))
    first = dict(zip(reversed(keys), reversed(rows), strict=True))
    return intern_as(keys, lambda key: _arguments(first[key]))


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

    def stack(self, value: Any) -> tuple[Frame, ...]:
        if type(value) not in (list, tuple):
            return ()
        return tuple(map(self.frame, value[:MAX_FRAMES]))


def _guess(value: Any) -> tuple[int, ...]:
    """Tells most stacks apart without walking them: ends and middle, by identity."""
    if type(value) is not list or not value:
        return (0,)
    size = len(value)
    return size, id(value[0]), id(value[size >> 1]), id(value[2 if size > 2 else -1])


def stacks(column: Column) -> tuple[Int32, list[tuple[Frame, ...]]]:
    """Indices into the distinct stacks; ABSENT for an entry without frames."""
    if column.count(None) == len(column):
        return np.full(len(column), ABSENT, dtype=np.int32), []
    maker = _Stacks()
    indices, found = intern_equal(column, list(map(_guess, column)), maker.stack)
    if () not in found:
        return indices, found
    # An entry without frames has no stack at all.
    empty = found.index(())
    indices = np.where(indices == empty, ABSENT, indices - (indices > empty)).astype(np.int32)
    return indices, [stack for stack in found if stack]


def _operations(table: Table) -> tuple[Int32, list[Any]]:
    return intern_as(texts(table["profiling_name"]), as_operation)


def _threads(table: Table) -> tuple[Int32, list[str]]:
    names, ids = table["thread_name"], table["thread_id"]
    rows: list[tuple[str, str]] = list(zip(texts(names), texts(ids), strict=True))
    return intern_as(rows, " ".join)


def _group_names(table: Table, descriptions: dict[str, str]) -> tuple[Int32, list[GroupName]]:
    if table.has("process_group"):
        names, given = pairs(table["process_group"])
    else:
        names, given = texts(table["pg_id"]), [""] * table.size

    def named(pair: tuple[str, str]) -> GroupName:
        return GroupName(pair[0], pair[1] or descriptions.get(pair[0], ""))

    rows: list[tuple[str, str]] = list(zip(names, given, strict=True))
    return intern_as(rows, named)


def _states(table: Table) -> Any:
    def state(name: str) -> int:
        return int(_STATES.get(name, State.UNKNOWN))

    indices, known = intern_as(texts(table["state"]), state)
    return np.array(known, dtype=np.int8)[indices]


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
    columns["state"] = _states(table)
    columns["group"], group_names = _group_names(table, descriptions)
    columns["operation"], operations = _operations(table)
    columns["argument"], found_arguments = arguments(table)
    columns["stack"], found_stacks = stacks(table["frames"])
    columns["thread"], threads = _threads(table)
    if table.has("is_p2p"):
        columns["is_p2p"] = bools(table["is_p2p"])
    else:
        p2p = [operation.op in ("send", "recv") for operation in operations]
        columns["is_p2p"] = np.array(p2p, dtype=np.bool_)[columns["operation"]]
    _sort(columns)
    return Entries(
        **columns,
        group_names=group_names,
        operations=operations,
        arguments=found_arguments,
        stacks=found_stacks,
        threads=threads,
    )


def _sort(columns: dict[str, Any]) -> None:
    """Oldest first: torch writes them so, other tools may not."""
    record = columns["record_id"]
    if (record[1:] < record[:-1]).any() and (record != ABSENT).all():
        order = np.argsort(record, kind="stable")
        for name in columns:
            columns[name] = columns[name][order]
