"""The calls of all ranks in one set of columns, aligned by group and sequence number.

``n`` is the number of calls; every array has shape ``(n,)``.  Calls stand by
rank, and those of a rank oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Bool,
    Entries,
    GroupName,
    Int32,
    Int64,
    RankDump,
)
from hanglab.analyzer.flight_recorder.concatenation import concatenated
from hanglab.analyzer.matching.completion import completed
from hanglab.analyzer.matching.group_names import NO_DESCRIPTION


@dataclass(frozen=True)
class GroupOfCalls(GroupName):
    """A process group; ``members`` are global ranks in group order, None if not known."""

    members: tuple[int, ...] | None

    @property
    def label(self) -> str:
        described = self.description not in NO_DESCRIPTION
        return self.description if described else self.name or "?"


@dataclass(kw_only=True)
class Calls(Entries):
    """Entries of all ranks."""

    rank: Int32
    #: By state, by retirement on gloo, or by the status of its group.
    finished: Bool
    #: Calls with the same number belong together across ranks.
    row: Int64

    @property
    def groups(self) -> list[GroupOfCalls]:
        """Table of the column ``group``."""
        return cast("list[GroupOfCalls]", self.group_names)


def collect_calls(dumps: Sequence[RankDump]) -> Calls:
    """Every entry of ``dumps``; a dump without entries adds nothing."""
    groups = _Groups(dumps)
    ranks = [np.zeros(0, dtype=np.int32)]
    finished = [np.zeros(0, dtype=np.bool_)]
    parts: list[Entries] = []
    for dump in dumps:
        entries = dump.entries
        if entries is None:
            continue
        own: list[GroupName] = [
            groups.described(groups.of(dump.rank, one.name)) for one in entries.group_names
        ]
        parts.append(replace(entries, group_names=own))
        ranks.append(np.full(len(entries), dump.rank, dtype=np.int32))
        finished.append(completed(dump))
    joined = concatenated(parts)
    calls = Calls(
        **vars(joined),
        rank=np.concatenate(ranks),
        finished=np.concatenate(finished),
        row=np.zeros(len(joined), dtype=np.int64),
    )
    calls.row = _rows(calls)
    return calls


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
        return GroupOfCalls(key[0], self._descriptions.get(key, ""), key[1])


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
