"""The calls of all ranks in one set of columns, aligned by group and sequence number.

``n`` is the number of calls; every array has shape ``(n,)``.  Calls stand by
rank, and those of a rank oldest first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Bool,
    Float64,
    Frame,
    Int8,
    Int32,
    Int64,
    Operation,
    RankDump,
)
from hanglab.analyzer.matching.completion import completed


@dataclass(frozen=True)
class GroupOfCalls:
    """A process group; ``members`` are global ranks in group order, None if not known."""

    name: str
    members: tuple[int, ...] | None
    description: str = ""

    @property
    def label(self) -> str:
        return self.description or self.name or "?"


@dataclass
class Calls:
    """Indices point into the tables below, as in ``columns.Entries``."""

    rank: Int32
    record_id: Int64
    pg_id: Int64
    group: Int32
    seq: Int64
    p2p_seq: Int64
    op_id: Int64
    operation: Int32
    argument: Int32
    stack: Int32
    state: Int8
    retired: Bool
    is_p2p: Bool
    created_ns: Int64
    started_ns: Int64
    completed_ns: Int64
    timeout_ms: Int64
    duration_ms: Float64
    thread: Int32
    #: By state, by retirement on gloo, or by the status of its group.
    finished: Bool
    #: Calls with the same number belong together across ranks.
    row: Int64
    groups: list[GroupOfCalls] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    arguments: list[Arguments] = field(default_factory=list)
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rank)


_INDEXED = {
    "group": "group_names",
    "operation": "operations",
    "argument": "arguments",
    "stack": "stacks",
    "thread": "threads",
}
_OWN = frozenset({"rank", "finished", "row"})


class _Tables:
    """Gives a value of any rank its place in the one table of all ranks."""

    def __init__(self) -> None:
        self.places: dict[str, dict[Any, int]] = {name: {} for name in _INDEXED}

    def translate(self, name: str, values: Sequence[Hashable]) -> Int32:
        table = self.places[name]
        numbers = [table.setdefault(value, len(table)) for value in values]
        # One more at the end: ABSENT stays ABSENT.
        return np.array([*numbers, ABSENT], dtype=np.int32)


def collect_calls(dumps: Sequence[RankDump]) -> Calls:
    """Every entry of ``dumps``; a dump without entries adds nothing."""
    groups = _Groups(dumps)
    tables = _Tables()
    names = [item.name for item in fields(Calls) if item.name not in _OWN]
    columns: dict[str, list[Any]] = {name: [] for name in (*names, *_OWN) if name not in _TABLES}
    for dump in dumps:
        entries = dump.entries
        if entries is None:
            continue
        columns["rank"].append(np.full(len(entries), dump.rank, dtype=np.int32))
        columns["finished"].append(completed(dump))
        for name in names:
            if name in _TABLES:
                continue
            column = getattr(entries, name)
            if name == "group":
                values: Sequence[Any] = [
                    groups.of(dump.rank, group.name) for group in entries.group_names
                ]
                column = tables.translate(name, values)[column]
            elif name in _INDEXED:
                column = tables.translate(name, getattr(entries, _INDEXED[name]))[column]
            columns[name].append(column)
    del columns["row"]
    joined = {name: _joined(name, parts) for name, parts in columns.items()}
    calls = Calls(**joined, row=np.zeros(len(joined["rank"]), dtype=np.int64))
    calls.groups = [groups.described(key) for key in tables.places["group"]]
    calls.operations = list(tables.places["operation"])
    calls.arguments = list(tables.places["argument"])
    calls.stacks = list(tables.places["stack"])
    calls.threads = list(tables.places["thread"])
    calls.row = _rows(calls)
    return calls


_TABLES = frozenset({"groups", "operations", "arguments", "stacks", "threads"})
_KINDS = {
    "rank": np.int32,
    "group": np.int32,
    "operation": np.int32,
    "argument": np.int32,
    "stack": np.int32,
    "thread": np.int32,
    "state": np.int8,
    "retired": np.bool_,
    "is_p2p": np.bool_,
    "finished": np.bool_,
    "duration_ms": np.float64,
}


def _joined(name: str, parts: list[Any]) -> Any:
    if not parts:
        return np.zeros(0, dtype=_KINDS.get(name, np.int64))
    return np.concatenate(parts)


_Key = tuple[str, tuple[int, ...] | None]


class _Groups:
    """A group is its name and its members, which some dumps do not know."""

    def __init__(self, dumps: Sequence[RankDump]) -> None:
        self._own = {(dump.rank, name): m for dump in dumps for name, m in dump.members.items()}
        self._known: dict[str, set[tuple[int, ...]]] = {}
        self._descriptions: dict[_Key, str] = {}
        for (_, name), members in self._own.items():
            self._known.setdefault(name, set()).add(members)
        for dump in dumps:
            for name, text in dump.descriptions.items():
                self._describe((name, self._own.get((dump.rank, name))), text)
            for group in dump.entries.group_names if dump.entries is not None else ():
                self._describe(self.of(dump.rank, group.name), group.description)

    def _describe(self, key: _Key, text: str) -> None:
        if text:
            self._descriptions.setdefault(key, text)

    def of(self, rank: int, name: str) -> _Key:
        members = self._own.get((rank, name))
        if members is None:
            # Its peers may know what this dump does not.
            known = [found for found in self._known.get(name, ()) if rank in found]
            members = known[0] if len(known) == 1 else None
        return name, members

    def described(self, key: _Key) -> GroupOfCalls:
        return GroupOfCalls(key[0], key[1], self._descriptions.get(key, ""))


def _rows(calls: Calls) -> Int64:
    """Number calls: one number per group and sequence number, in the order of time.

    A rank has several entries under one number where operations were coalesced:
    the first stands beside the first of its peers, and so on.  A send or receive
    stands alone, for its numbers mean nothing to other ranks.
    """
    count = len(calls)
    if not count:
        return np.zeros(0, dtype=np.int64)
    alone = calls.is_p2p | (calls.seq == ABSENT)
    order = np.lexsort((np.arange(count), calls.seq, calls.group, calls.rank, alone))
    keys = np.stack([alone, calls.rank, calls.group, calls.seq])[:, order]
    first = np.ones(count, dtype=np.bool_)
    first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    starts = np.maximum.accumulate(np.where(first, np.arange(count), 0))
    nth = np.zeros(count, dtype=np.int64)
    nth[order] = np.arange(count) - starts
    # A call that stands alone gets a key of its own.
    own = np.where(alone, np.arange(count), -1)
    return _by_time(calls, [calls.group, calls.seq * ~alone, nth * ~alone, own])


def _by_time(calls: Calls, keys: list[Any]) -> Int64:
    """Numbers the distinct keys by when the first rank came there.

    Within a group the order of sequence numbers holds even where clocks differ.
    """
    _, row = np.unique(np.stack(keys), axis=1, return_inverse=True)
    row = row.reshape(-1)
    total = int(row.max()) + 1
    created = np.where(calls.created_ns == ABSENT, np.iinfo(np.int64).max, calls.created_ns)
    time = np.full(total, np.iinfo(np.int64).max)
    np.minimum.at(time, row, created)
    first = np.zeros(total, dtype=np.int64)
    first[row[::-1]] = np.arange(len(row) - 1, -1, -1)
    group, seq = calls.group[first], np.where(calls.is_p2p[first], ABSENT, calls.seq[first])
    for number in range(len(calls.groups)):
        inside = np.flatnonzero((group == number) & (seq != ABSENT))
        inside = inside[np.argsort(seq[inside], kind="stable")]
        time[inside] = np.maximum.accumulate(time[inside])
    order = np.lexsort((np.arange(total), seq, time))
    place = np.zeros(total, dtype=np.int64)
    place[order] = np.arange(total)
    return place[row]
