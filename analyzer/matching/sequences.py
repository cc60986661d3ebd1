"""Sequences of calls of one group's members, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Int32, Int64
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries, SignatureHistory
from hanglab.analyzer.matching.signatures import SITE, UInt64
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.matching.thresholds import COMPARED_HISTORIES, FULL_CALLS

Signature = tuple[int, ...]


@dataclass
class Sequences:
    """Sequences of calls of one group's members, by sequence number."""

    group: ResolvedGroup
    histories: list[SignatureHistory]
    table: UInt64
    #: Ranks of which those calls alone are known, all of them, that passed the Python boundary.
    boundary_only: frozenset[int] = frozenset()

    def of(self, rank: int) -> tuple[int, Int32]:
        """First sequence number and codes of one rank."""
        for history in self.histories:
            window = history.windows.get(rank)
            if window is not None:
                low, high = window
                return low, history.codes[low - history.base : high - history.base]
        return 0, np.zeros(0, dtype=np.int32)

    def code(self, rank: int, seq: int) -> int:
        base, codes = self.of(rank)
        return int(codes[seq - base]) if base <= seq < base + len(codes) else GAP

    def site(self, code: int) -> int:
        """Number of the line that a call came from; 0 if it is unknown."""
        return int(self.table[code][SITE])

    def signature(self, code: int) -> Signature | None:
        """All that is known of a call, its call site last; None in a gap."""
        return None if code == GAP else self.row(code)

    def row(self, code: int) -> Signature:
        return tuple(self.table[code].tolist())

    def signatures(self, rank: int, low: int | None, high: int | None) -> list[Signature | None]:
        """Signatures of one rank from ``low`` to one before ``high``."""
        base, codes = self.of(rank)
        start = 0 if low is None else max(0, low - base)
        stop = len(codes) if high is None else max(0, high - base)
        return [self.signature(code) for code in codes[start:stop].tolist()]


def sequences_of(merged: MergedSummaries, group: ResolvedGroup, table: UInt64) -> Sequences:
    members = set(group.progress)
    histories = []
    for key in group.histories:
        for history in merged.histories.get(key, ()):
            if members.isdisjoint(history.windows):
                continue
            histories.append(history)
    boundary_only = {r for r in members if r in merged.ranks and merged.ranks[r].boundary_only}
    return Sequences(group, histories, table, frozenset(boundary_only))


def calls_under(
    sequences: Sequences, lookup: CallLookup, seq: int, ranks: list[int], first: tuple[int, ...]
) -> dict[int, Call]:
    """Calls of ``ranks`` under one number, those of ``first`` before all others."""
    calls = {}
    chosen = [*first, *(rank for rank in ranks if rank not in first)][:FULL_CALLS]
    lookup.prefetch(chosen)
    for rank in chosen:
        call = lookup.collective(rank, sequences.group, seq)
        if call is not None:
            calls[rank] = call
    return dict(sorted(calls.items()))


def keep_together(sequences: Sequences, ranks: list[int], seq: int, columns: Sequence[int]) -> bool:
    """True if most of a side's ranks do the same from a number on, as far as is known.

    By these columns of signatures.  Where each takes a way of its own at a time of its own, nobody
    is the exception.
    """
    histories = sequences.histories[:COMPARED_HISTORIES]
    counts = [(one, n) for one in histories if (n := sum(rank in one.windows for rank in ranks))]
    compared = sum(count for _, count in counts)
    return not counts or any(
        2 * sum(n for other, n in counts if _agree(sequences.table, one, other, seq, columns))
        > compared
        for one, _ in counts
    )


def _agree(
    table: UInt64,
    one: SignatureHistory,
    other: SignatureHistory,
    seq: int,
    columns: Sequence[int],
) -> bool:
    low, mine, theirs = one.overlap(other)
    mine, theirs = mine[max(0, seq - low) :], theirs[max(0, seq - low) :]
    known = (mine != GAP) & (theirs != GAP)
    kept: Int64 = np.array(columns)
    return bool((table[mine[known]][:, kept] == table[theirs[known]][:, kept]).all())
