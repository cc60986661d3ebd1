"""Counts sends and receives from a collective that both sides remember.

Where rings have lost the beginning, nobody knows which send belongs to which
receive.  From a collective that both ranks have in their rings on, they can be
counted again, as long as the counts agree at every later one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Int64
from hanglab.analyzer.graph.waits import OpenOperation
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of


@dataclass
class _ChannelHalf:
    """One rank's half of a channel."""

    #: Indices of its entries.
    rows: Int64
    #: Collective (group, number) -> index of its entry.
    marks: dict[tuple[str, int], int]

    def before(self, index: int) -> int:
        return int(np.searchsorted(self.rows, index))


def posted_by_counts(waiting: OpenOperation, lookup: CallLookup) -> bool | None:
    """True if the other half of a send or receive has been posted; None if that stays unknown."""
    (rank, pending), *_ = waiting.waiters.items()
    if waiting.peer is None:
        return None
    op = op_of(pending.op)
    mine = _channel_half(lookup.entries(rank), waiting, pending, op.half)
    theirs = _channel_half(lookup.entries(waiting.peer), waiting, pending, op.other_half)
    if mine is None or theirs is None:
        return None
    common = sorted(mine.marks.keys() & theirs.marks.keys(), key=lambda mark: mine.marks[mark])
    offsets = [
        theirs.before(theirs.marks[mark]) - mine.before(mine.marks[mark])
        for mark in common
        if mine.marks[mark] < pending.index
    ]
    if not offsets or any(offset != offsets[0] for offset in offsets):
        return None
    return mine.before(pending.index) + offsets[0] < len(theirs.rows)


def _channel_half(
    entries: Entries | None, waiting: OpenOperation, pending: Pending, half: str
) -> _ChannelHalf | None:
    if entries is None or pending.index == ABSENT:
        return None
    names = [group.name for group in entries.group_names]
    fitting = [
        number
        for number, operation in enumerate(entries.operations)
        if op_of(operation.op).half == half
        and (operation.src, operation.dst) == (pending.src, pending.dst)
    ]
    groups = [number for number, name in enumerate(names) if name == waiting.group.group.name]
    rows = np.flatnonzero(np.isin(entries.operation, fitting) & np.isin(entries.group, groups))
    collective = np.flatnonzero(~entries.is_p2p & (entries.seq >= 0))
    marks = {
        (names[group], seq): index
        for index, group, seq in zip(
            collective.tolist(),
            entries.group[collective].tolist(),
            entries.seq[collective].tolist(),
            strict=True,
        )
    }
    return _ChannelHalf(rows, marks)
