"""Questions to the columns of a dump's entries."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries, Int64, RankDump
from hanglab.analyzer.matching.thresholds import DENSE_NUMBERS


def has_boundary(dump: RankDump) -> bool:
    """True if the Python boundary's sends and receives are among the entries."""
    entries = dump.entries
    added = entries is not None and bool((entries.record_id < 0).any())
    return bool(dump.extra.get("boundary")) or added


def thread_of(entries: Entries, row: int) -> str:
    """The number of the thread; a dump has its name before it, the boundary has not."""
    number = int(entries.thread[row])
    return entries.threads[number].rpartition(" ")[2] if 0 <= number < len(entries.threads) else ""


def busiest_thread(entries: Entries) -> str:
    known = entries.thread[entries.thread >= 0]
    if len(entries.threads) < 2 or not len(known):
        return thread_of(entries, 0)
    return entries.threads[int(np.bincount(known).argmax())].rpartition(" ")[2]


def only_thread(entries: Entries, rows: Int64) -> str:
    """The thread that issued all of ``rows``, "" where there is no such one."""
    if not len(rows):
        return ""
    first = thread_of(entries, int(rows[0]))
    if bool((entries.thread[rows] == entries.thread[rows[0]]).all()):
        return first
    _, kept = np.unique(entries.thread[rows], return_index=True)
    return first if len({thread_of(entries, int(rows[at])) for at in kept}) == 1 else ""


def distinct(values: Int64) -> tuple[Int64, Int64]:
    """Sorted distinct values and the index of each value among them.

    As np.unique, which imports numpy.ma for it: 30 ms at the start of a command.
    """
    if len(values) and 0 <= int(values.min()) and int(values.max()) < DENSE_NUMBERS:
        there = np.zeros(int(values.max()) + 1, dtype=np.bool_)
        there[values] = True
        return np.flatnonzero(there), (np.cumsum(there) - 1)[values]
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.ones(len(values), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    indices = np.empty(len(values), dtype=np.int64)
    indices[order] = np.cumsum(first) - 1
    return ordered[first], indices
