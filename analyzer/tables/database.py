"""The entries of all ranks as Parquet files, for queries of any kind.

The schema stands in docs/entries-database.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.flight_recorder import Loaded
from hanglab.analyzer.flight_recorder.columns import ABSENT, State
from hanglab.analyzer.tables.calls import Calls, GroupOfCalls, collect_calls
from hanglab.analyzer.tables.mismatches import mismatch

TABLES = ("groups", "memberships", "collectives", "calls", "stacks")


def write_database(loaded: Loaded, out_dir: Path) -> list[Path]:
    """Writes one file per table into ``out_dir`` (made if need be) and returns their paths.

    Raises InputError where pyarrow is not installed.
    """
    try:
        pa: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            "writing Parquet needs pyarrow, which is not installed",
            "pip install 'hanglab[tables]'",
        ) from None

    calls = collect_calls(loaded.dumps)
    groups = _all_groups(loaded, calls)
    made = {
        "groups": _groups(pa, groups),
        "memberships": _memberships(pa, groups, {dump.rank for dump in loaded.dumps}),
        "collectives": _collectives(pa, calls),
        "calls": _calls(pa, calls),
        "stacks": _stacks(pa, calls),
    }
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in TABLES:
        path = out_dir / f"{name}.parquet"
        parquet.write_table(made[name], path, compression="zstd")
        paths.append(path)
    return paths


def _all_groups(loaded: Loaded, calls: Calls) -> list[GroupOfCalls]:
    """The groups of the calls, in their order, and after them those that nobody used."""
    groups = list(calls.groups)
    seen = {(group.name, group.members) for group in groups}
    for dump in loaded.dumps:
        for name, members in dump.members.items():
            if (name, members) not in seen:
                seen.add((name, members))
                groups.append(GroupOfCalls(name, dump.descriptions.get(name, ""), members))
    return groups


def _groups(pa: Any, groups: Sequence[GroupOfCalls]) -> Any:
    sizes = [None if group.members is None else len(group.members) for group in groups]
    return pa.table(
        {
            "group_id": pa.array(range(len(groups)), pa.int32()),
            "name": pa.array([group.name for group in groups], pa.string()),
            "description": pa.array([group.description for group in groups], pa.string()),
            "size": pa.array(sizes, pa.int32()),
        }
    )


def _memberships(pa: Any, groups: Sequence[GroupOfCalls], ranks: set[int]) -> Any:
    rows = [
        (number, rank, position, rank in ranks)
        for number, group in enumerate(groups)
        for position, rank in enumerate(group.members or ())
    ]
    ids, members, positions, dumped = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        {
            "group_id": pa.array(ids, pa.int32()),
            "rank": pa.array(members, pa.int32()),
            "group_rank": pa.array(positions, pa.int32()),
            "has_dump": pa.array(dumped, pa.bool_()),
        }
    )


def _collectives(pa: Any, calls: Calls) -> Any:
    """One row per row of the entries table."""
    order = np.argsort(calls.row, kind="stable")
    bounds = np.flatnonzero(np.diff(calls.row[order])) + 1
    pieces = np.split(order, bounds) if len(order) else []
    first = np.array([piece[0] for piece in pieces], dtype=np.int64)
    created = [calls.created_ns[piece][calls.created_ns[piece] != ABSENT] for piece in pieces]
    differences = []
    for piece in pieces:
        kinds = [(calls.operation_at(n), calls.arguments_at(n)) for n in piece.tolist()]
        difference, _ = mismatch(kinds)
        differences.append(None if difference is None else difference.value)
    ops = [operation.op for operation in calls.operations]
    p2p = calls.is_p2p[first]
    size = [_size(calls, n) for n in first.tolist()]
    return pa.table(
        {
            "collective_id": pa.array(calls.row[first], pa.int64()),
            "group_id": pa.array(calls.group[first], pa.int32()),
            "seq": _optional(pa, np.where(p2p, ABSENT, calls.seq[first]), pa.int64()),
            "op": pa.array([ops[number] for number in calls.operation[first]], pa.string()),
            "is_p2p": pa.array(p2p, pa.bool_()),
            "expected": pa.array(size, pa.int32()),
            "entered": pa.array([len(piece) for piece in pieces], pa.int32()),
            "finished": pa.array([int(calls.finished[p].sum()) for p in pieces], pa.int32()),
            "first_created_ns": pa.array([_edge(t, 0) for t in created], pa.int64()),
            "last_created_ns": pa.array([_edge(t, -1) for t in created], pa.int64()),
            "mismatch": pa.array(differences, pa.string()),
        }
    )


def _size(calls: Calls, n: int) -> int | None:
    if calls.is_p2p[n]:
        return 1
    members = calls.groups[calls.group[n]].members
    return None if members is None else len(members)


def _edge(times: npt.NDArray[Any], which: int) -> int | None:
    return int(np.sort(times)[which]) if len(times) else None


def _optional(pa: Any, column: npt.NDArray[Any], kind: Any) -> Any:
    """Null where the value is absent."""
    return pa.array(column, kind, mask=column == ABSENT)


def _calls(pa: Any, calls: Calls) -> Any:
    def taken(values: list[Any], kind: Any, indices: npt.NDArray[Any]) -> Any:
        return pa.array(values, kind).take(pa.array(indices))

    text, sizes = pa.string(), pa.list_(pa.list_(pa.int64()))
    operations, arguments = calls.operations, calls.arguments

    def of_operation(name: str, kind: Any) -> Any:
        values = [getattr(operation, name) for operation in operations]
        values = [None if value == ABSENT else value for value in values]
        return taken(values, kind, calls.operation)

    def of_arguments(name: str, kind: Any) -> Any:
        return taken([getattr(item, name) for item in arguments], kind, calls.argument)

    names = {int(state): state.name.lower() for state in State}
    return pa.table(
        {
            "call_id": pa.array(np.arange(len(calls)), pa.int64()),
            "collective_id": pa.array(calls.row, pa.int64()),
            "rank": pa.array(calls.rank, pa.int32()),
            "group_id": pa.array(calls.group, pa.int32()),
            "record_id": _optional(pa, calls.record_id, pa.int64()),
            "pg_id": _optional(pa, calls.pg_id, pa.int64()),
            "seq": _optional(pa, calls.seq, pa.int64()),
            "p2p_seq": _optional(pa, calls.p2p_seq, pa.int64()),
            "op_id": _optional(pa, calls.op_id, pa.int64()),
            "backend": of_operation("backend", text),
            "op": of_operation("op", text),
            "src": of_operation("src", pa.int32()),
            "dst": of_operation("dst", pa.int32()),
            "input_sizes": of_arguments("input_sizes", sizes),
            "output_sizes": of_arguments("output_sizes", sizes),
            "input_dtypes": of_arguments("input_dtypes", pa.list_(text)),
            "output_dtypes": of_arguments("output_dtypes", pa.list_(text)),
            "state": pa.array([names[state] for state in calls.state.tolist()], text),
            "retired": pa.array(calls.retired, pa.bool_()),
            "finished": pa.array(calls.finished, pa.bool_()),
            "is_p2p": pa.array(calls.is_p2p, pa.bool_()),
            "created_ns": _optional(pa, calls.created_ns, pa.int64()),
            "started_ns": _optional(pa, calls.started_ns, pa.int64()),
            "completed_ns": _optional(pa, calls.completed_ns, pa.int64()),
            "duration_ms": pa.array(calls.duration_ms, pa.float64(), from_pandas=True),
            "timeout_ms": _optional(pa, calls.timeout_ms, pa.int64()),
            "thread": taken(calls.threads, text, calls.thread),
            "stack_id": _optional(pa, calls.stack, pa.int32()),
        }
    )


def _stacks(pa: Any, calls: Calls) -> Any:
    """One row per frame, innermost first."""
    rows = [
        (number, depth, frame.function, frame.file, frame.line)
        for number, stack in enumerate(calls.stacks)
        for depth, frame in enumerate(stack)
    ]
    ids, depths, functions, files, lines = zip(*rows, strict=True) if rows else ((),) * 5
    return pa.table(
        {
            "stack_id": pa.array(ids, pa.int32()),
            "depth": pa.array(depths, pa.int32()),
            "function": pa.array(functions, pa.string()),
            "file": pa.array(files, pa.string()),
            "line": pa.array([None if n == ABSENT else n for n in lines], pa.int32()),
        }
    )
