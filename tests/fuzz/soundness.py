"""What holds of every dump that the loader returns, whatever the bytes were."""

from __future__ import annotations

from typing import Any

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump, State
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded, decode_pickle
from hanglab.analyzer.flight_recorder.entry_kinds import WrongKinds
from hanglab.analyzer.flight_recorder.errors import DumpError
from hanglab.analyzer.flight_recorder.pattern_reader import Likenesses
from hanglab.analyzer.flight_recorder.repeated_entries import thin

#: Column, its type, the table that it points into.
_COLUMNS = {
    "record_id": (np.int64, None),
    "pg_id": (np.int64, None),
    "group": (np.int32, "group_names"),
    "seq": (np.int64, None),
    "p2p_seq": (np.int64, None),
    "op_id": (np.int64, None),
    "operation": (np.int32, "operations"),
    "argument": (np.int32, "arguments"),
    "stack": (np.int32, "stacks"),
    "state": (np.int8, None),
    "retired": (np.bool_, None),
    "is_p2p": (np.bool_, None),
    "created_ns": (np.int64, None),
    "started_ns": (np.int64, None),
    "completed_ns": (np.int64, None),
    "timeout_ms": (np.int64, None),
    "duration_ms": (np.float64, None),
    "thread": (np.int32, "threads"),
}


def check_short_way(data: bytes) -> bool:
    """Raises AssertionError where reading by kinds of entries says other than reading each.

    True where the short way was taken.
    """
    thinned = thin(data, few=2)
    if thinned is None:
        return False
    options: dict[str, Any] = {"rank": 0, "source": "x", "from_json": False, "contained": False}
    try:
        short = read_content(decode_pickle(thinned.data), whole=thinned.expand, **options)
    except (WrongKinds, DumpError):
        return False
    if short.damage:
        return False
    assert repr(short) == repr(read_content(decode_pickle(data), **options))
    return True


def _decoded(data: bytes) -> Decoded | None:
    try:
        decoded = decode_pickle(data)
    except DumpError:
        return None
    return None if decoded.damage else decoded


def check_alike(files: list[bytes]) -> int:
    """Raises AssertionError where a dump, read by what earlier ones taught, says anything else.

    Returns how many were read so.
    """
    seen = Likenesses(least=2)
    options: dict[str, Any] = {"rank": 0, "source": "x", "from_json": False, "contained": False}
    count = 0
    for data in files:
        recalled = seen.recall(data, _decoded)
        if recalled is not None:
            try:
                short = read_content(recalled[0], whole=recalled[1], **options)
            except (WrongKinds, DumpError):
                short = None
            if short is not None and short.entries is not None and not short.damage:
                assert repr(short) == repr(read_content(decode_pickle(data), **options))
                count += 1
        thinned = thin(data, few=2)
        decoded = _decoded(thinned.data) if thinned is not None else None
        if thinned is None or decoded is None:
            continue
        try:
            dump = read_content(decoded, whole=thinned.expand, **options)
        except (WrongKinds, DumpError):
            continue
        if dump.entries is not None and not dump.damage:
            seen.learn(data, thinned, dump.entries, _decoded)
    return count


def check_sound(dump: RankDump) -> None:
    """Raises AssertionError where ``dump`` breaks the contract of its columns."""
    assert type(dump.version) is str
    assert type(dump.library_version) is str
    assert type(dump.damage) is str
    for name, members in dump.members.items():
        assert type(name) is str
        assert members
        assert all(type(rank) is int and 0 <= rank < 1 << 24 for rank in members)
        assert len(set(members)) == len(members)
    for name, text in dump.descriptions.items():
        assert type(name) is str
        assert type(text) is str
    for pg_id, status in dump.status.items():
        assert type(pg_id) is int
        for number in (status.enqueued, status.started, status.completed):
            assert number is None or (type(number) is int and number >= 0)
    for pg_id, name in dump.names.items():
        assert type(pg_id) is int
        assert type(name) is str
    if dump.entries is not None:
        _check_entries(dump.entries)


def _check_entries(entries: Entries) -> None:
    count = len(entries)
    assert count > 0
    for name, (kind, table) in _COLUMNS.items():
        column = getattr(entries, name)
        assert column.dtype == kind, name
        assert column.shape == (count,), name
        if table is not None:
            rows = getattr(entries, table)
            lowest = ABSENT if name == "stack" else 0
            assert column.min() >= lowest, name
            assert column.max() < len(rows), name
    assert set(entries.state.tolist()) <= {int(state) for state in State}
    for operation in entries.operations:
        assert type(operation.op) is str
        assert operation.src >= ABSENT
        assert operation.dst >= ABSENT
    for group in entries.group_names:
        assert type(group.name) is str
        assert type(group.description) is str
    for arguments in entries.arguments:
        for shape in (*arguments.input_sizes, *arguments.output_sizes):
            assert all(type(size) is int for size in shape)
        for dtype in (*arguments.input_dtypes, *arguments.output_dtypes):
            assert type(dtype) is str
    for stack in entries.stacks:
        assert stack
        for frame in stack:
            assert type(frame.function) is str
            assert type(frame.file) is str
            assert type(frame.line) is int
    assert all(type(thread) is str for thread in entries.threads)
