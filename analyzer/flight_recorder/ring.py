"""The entries of one dump, from dictionaries to columns.

Entries of one dump nearly always have the same keys, and most of an entry
repeats: a dump holds few kinds of entries.  So the columns are made by a handful
of calls that run in C, and only the kinds are looked at one by one.  What does
not fit is made value by value, and nothing that it holds can raise.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Hashable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Entries,
    Float64,
    GroupName,
    Int32,
    Int64,
    Operation,
    State,
)
from hanglab.analyzer.flight_recorder.interning import intern
from hanglab.analyzer.flight_recorder.tracebacks import stacks
from hanglab.analyzer.flight_recorder.values import as_bool, as_float, as_int, as_operation, as_text
from hanglab.recorder.case.operations import SPLIT_KEYS, op_of
from hanglab.recorder.case.progress_records import SplitLists

#: Beyond these, the rest of one entry's tensors or dimensions is left out.
MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 64

_STATES = {
    "scheduled": State.SCHEDULED,
    "started": State.STARTED,
    "completed": State.COMPLETED,
}
#: Keys whose values repeat from entry to entry.
_REPEATING = (
    "profiling_name",
    "process_group",
    "thread_name",
    "thread_id",
    "state",
    "input_sizes",
    "output_sizes",
    "input_dtypes",
    "output_dtypes",
    "pg_id",
    "timeout_ms",
    "retired",
    "is_p2p",
    *SPLIT_KEYS,
)
_NUMBERS = {"record_id": "record_id", "p2p_seq": "p2p_seq_id", "op_id": "op_id"}
_TIMES = {
    "created_ns": "time_created_ns",
    "started_ns": "time_discovered_started_ns",
    "completed_ns": "time_discovered_completed_ns",
}
#: Before 2.1 there was one number for both kinds of operation.
_SEQ = ("collective_seq_id", "seq_id")
Column = Sequence[Any]
Dicts = list[dict[str, Any]]


class _CommonValues(NamedTuple):
    """Values that the entries of one kind have in common."""

    operation: Operation
    group: GroupName
    thread: str
    argument: Arguments
    state: int
    pg_id: int
    timeout_ms: int
    retired: bool
    is_p2p: bool


def rows_of(entries: Dicts, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of ``keys`` in each entry, None where an entry lacks one."""
    try:
        return list(map(itemgetter(*keys), entries))
    except KeyError:
        return [tuple(map(entry.get, keys)) for entry in entries]


def _present(entries: Dicts, keys: Sequence[str]) -> list[str]:
    """Members of ``keys`` that some entry has; two at least, so that a row is a tuple."""
    first = entries[0]
    found = [key for key in keys if key in first or any(key in entry for entry in entries)]
    return found if len(found) > 1 else list(keys)


def ints(column: Column) -> Int64:
    """Integers of shape ``(n,)``; ABSENT where there is none."""
    try:
        return np.frombuffer(array("q", column), dtype=np.int64)
    except (TypeError, OverflowError):
        return np.fromiter(map(as_int, column), np.int64, len(column))


def times(column: Column, *, zero_is_absent: bool) -> Int64:
    """Like :func:`ints`; the JSON form writes 0 for a time that is not known."""
    if column.count(None) == len(column):
        return np.full(len(column), ABSENT, dtype=np.int64)
    values = ints(column)
    if zero_is_absent and not values.all():
        values = np.where(values == 0, ABSENT, values)
    return values


def floats(column: Column) -> Float64:
    if column.count(None) == len(column):
        return np.full(len(column), np.nan)
    return np.fromiter(map(as_float, column), np.float64, len(column))


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


def _splits(sends: Any, receives: Any) -> SplitLists | None:
    """Both lists of an all_to_all; None before format 2.11, and where one is missing or no list."""
    if not sends or not receives or {type(sends), type(receives)} - {list, tuple}:
        return None
    return SplitLists(*(tuple(map(as_int, one[:MAX_TENSORS])) for one in (sends, receives)))


def _group(value: Any, pg_id: Any, descriptions: dict[str, str]) -> GroupName:
    """A process group, written as a pair of name and description, as one text, or not at all."""
    description = ""
    if type(value) in (tuple, list):
        name = as_text(value[0]) if value else ""
        description = as_text(value[1]) if len(value) > 1 else ""
    else:
        name = as_text(pg_id if value is None else value)
    return GroupName(name, description or descriptions.get(name, ""))


def _kind(row: dict[str, Any], descriptions: dict[str, str]) -> _CommonValues:
    get = row.get
    operation = as_operation(as_text(get("profiling_name")))
    is_p2p = get("is_p2p")
    return _CommonValues(
        operation=operation,
        group=_group(get("process_group"), get("pg_id"), descriptions),
        thread=as_text(f"{as_text(get('thread_name'))} {as_text(get('thread_id'))}".strip()),
        argument=Arguments(
            input_sizes=_shapes(get("input_sizes")),
            output_sizes=_shapes(get("output_sizes")),
            input_dtypes=_dtypes(get("input_dtypes")),
            output_dtypes=_dtypes(get("output_dtypes")),
            splits=_splits(*map(get, SPLIT_KEYS)),
        ),
        state=int(_STATES.get(as_text(get("state")), State.UNKNOWN)),
        pg_id=as_int(get("pg_id")),
        timeout_ms=as_int(get("timeout_ms")),
        retired=as_bool(get("retired")),
        is_p2p=op_of(operation.op).p2p if is_p2p is None else as_bool(is_p2p),
    )


def _keys(rows: list[tuple[Any, ...]], *, contained: bool) -> Sequence[Hashable] | None:
    """Bytes that are equal only for equal rows: marshal is the cheapest way to something to hash.

    The old format of marshal is faster, but writes a shared part once for each
    of its uses: where memory has no limit it is not for strangers.
    """
    if contained:
        try:
            return list(map(marshal.dumps, rows, repeat(2)))
        except (ValueError, MemoryError):
            pass
    try:
        return list(map(marshal.dumps, rows))
    except ValueError:  # nests too deeply
        return None


def _kinds(
    entries: Dicts, descriptions: dict[str, str], *, contained: bool
) -> tuple[Int32, list[_CommonValues]]:
    """The kinds of entries, and which one each entry is of."""
    names = _present(entries, _REPEATING)
    rows = rows_of(entries, names)

    def kind(row: tuple[Any, ...]) -> _CommonValues:
        return _kind(dict(zip(names, row, strict=True)), descriptions)

    keys = _keys(rows, contained=contained)
    if keys is None:
        return intern(list(map(kind, rows)))
    of_entry, distinct = intern(keys)
    first = np.zeros(len(distinct), dtype=np.int64)
    # Of equal indices the last one assigned counts.
    first[of_entry[::-1]] = np.arange(len(rows) - 1, -1, -1)
    return of_entry, [kind(rows[number]) for number in first.tolist()]


def _common_columns(of_entry: Int32, kinds: list[_CommonValues]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    by_kind = _CommonValues(*zip(*kinds, strict=True))  # type: ignore[arg-type]
    for column, table in (
        ("operation", "operations"),
        ("group", "group_names"),
        ("thread", "threads"),
        ("argument", "arguments"),
    ):
        indices, columns[table] = intern(getattr(by_kind, column))
        columns[column] = indices[of_entry]
    for column, dtype in (
        ("state", np.int8),
        ("pg_id", np.int64),
        ("timeout_ms", np.int64),
        ("retired", np.bool_),
        ("is_p2p", np.bool_),
    ):
        columns[column] = np.array(getattr(by_kind, column), dtype=dtype)[of_entry]
    return columns


def read_entries(
    entries: Dicts, descriptions: dict[str, str], *, from_json: bool, contained: bool
) -> Entries:
    """Columns of ``entries`` (at least one), oldest first.

    ``contained`` says that this process may run into limits of its own.
    """
    columns = _common_columns(*_kinds(entries, descriptions, contained=contained))
    names = _present(entries, ("frames", *_NUMBERS.values(), *_SEQ, *_TIMES.values()))
    values: dict[str, Column] = dict(
        zip(names, zip(*rows_of(entries, names), strict=True), strict=True)
    )
    none: Column = (None,) * len(entries)
    for column, key in _NUMBERS.items():
        columns[column] = ints(values.get(key, none))
    for column, key in _TIMES.items():
        columns[column] = times(values.get(key, none), zero_is_absent=from_json)
    columns["seq"] = ints(values[_SEQ[0]] if _SEQ[0] in values else values.get(_SEQ[1], none))
    columns["duration_ms"] = floats([entry.get("duration_ms") for entry in entries])
    columns["stack"], columns["stacks"] = stacks(values.get("frames", none))
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
