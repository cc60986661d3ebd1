"""Summaries of ranks united: what all members of a group did, held once per way of doing it.

Uniting is associative and loses nothing: from the histories and the windows,
each rank's own sequence can be had again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Int32
from hanglab.analyzer.matching.signatures import UInt64
from hanglab.analyzer.matching.summary import GAP, GroupSummary, Members, RankSummary
from hanglab.analyzer.matching.thresholds import FARTHEST_NUMBERS, SEARCHED_HISTORIES

GroupKey = tuple[str, Members | None]


@dataclass
class SignatureHistory:
    """Signatures by sequence number, the same for all ranks in ``windows`` where they have any."""

    base: int
    #: Index into :attr:`Merged.signatures`; GAP where no rank has an entry.
    codes: Int32
    #: Rank -> the sequence numbers that it has entries for, first and one past the last.
    windows: dict[int, tuple[int, int]]

    def overlap(self, other: SignatureHistory) -> tuple[int, Int32, Int32]:
        """The first number of both, and what each has from there to the last of both."""
        low = max(self.base, other.base)
        high = max(low, min(self.base + len(self.codes), other.base + len(other.codes)))
        mine = self.codes[low - self.base : high - self.base]
        return low, mine, other.codes[low - other.base : high - other.base]

    def agrees(self, other: SignatureHistory) -> bool:
        low, mine, others = self.overlap(other)
        if not len(mine):
            end = min(self.base + len(self.codes), other.base + len(other.codes))
            return low - end < FARTHEST_NUMBERS
        if len(mine) == len(others) and np.array_equal(mine, others):
            return True
        return bool(((mine == others) | (mine == GAP) | (others == GAP)).all())

    def take(self, other: SignatureHistory) -> None:
        low = min(self.base, other.base)
        high = max(self.base + len(self.codes), other.base + len(other.codes))
        if low == self.base and high == self.base + len(self.codes):
            part = self.codes[other.base - low : other.base - low + len(other.codes)]
            gaps = part == GAP
            if gaps.any():
                self.codes = self.codes.copy()
                part = self.codes[other.base - low : other.base - low + len(other.codes)]
                part[gaps] = other.codes[gaps]
        else:
            codes = np.full(high - low, GAP, dtype=np.int32)
            codes[other.base - low : other.base - low + len(other.codes)] = other.codes
            part = codes[self.base - low : self.base - low + len(self.codes)]
            known = self.codes != GAP
            part[known] = self.codes[known]
            self.base, self.codes = low, codes
        self.windows.update(other.windows)


@dataclass
class MergedSummaries:
    """Any number of ranks.  The summaries have lost their codes to ``histories``."""

    ranks: dict[int, RankSummary] = field(default_factory=dict)
    histories: dict[GroupKey, list[SignatureHistory]] = field(default_factory=dict)
    #: Rows of the tables of signatures, each with its number.
    signatures: dict[bytes, int] = field(default_factory=dict)

    def add(self, summary: RankSummary) -> None:
        """Take one rank in; a second summary of the same rank is left out."""
        if summary.rank in self.ranks:
            return
        numbers = self._numbers(summary.table)
        for part in summary.parts:
            if part.codes is not None:
                codes = _renumber(part.codes, numbers)
                window = {summary.rank: (part.base, part.base + part.length)}
                self.enter(group_key(part), SignatureHistory(part.base, codes, window))
        self.ranks[summary.rank] = replace(
            summary,
            parts=[replace(part, codes=None) for part in summary.parts],
            table=np.zeros((0, 5), dtype=np.uint64),
        )

    def unite(self, other: MergedSummaries) -> None:
        """Take all ranks of another one in, which must share none with this one."""
        self.ranks.update(other.ranks)
        numbers = self._numbers(other.table())
        for key, histories in other.histories.items():
            for history in histories:
                codes = _renumber(history.codes, numbers)
                self.enter(key, SignatureHistory(history.base, codes, dict(history.windows)))

    def table(self) -> UInt64:
        """All signatures, of shape ``(k, 5)``."""
        joined = b"".join(self.signatures)
        return np.frombuffer(joined, dtype=np.uint64).reshape(-1, 5)

    def _numbers(self, table: UInt64) -> Int32:
        known = self.signatures
        rows = [row.tobytes() for row in table]
        return np.array([known.setdefault(row, len(known)) for row in rows] + [GAP], np.int32)

    def enter(self, key: GroupKey, history: SignatureHistory) -> None:
        """Take one history of a group in."""
        histories = self.histories.setdefault(key, [])
        for known in histories[:SEARCHED_HISTORIES]:
            if known.agrees(history):
                known.take(history)
                return
        histories.append(history)


def _renumber(codes: Int32, numbers: Int32) -> Int32:
    # The last number is GAP's own, which is index -1.
    return numbers[codes]


def group_key(part: GroupSummary) -> GroupKey:
    return part.name, part.members or None


def merge_all(parts: Iterable[RankSummary | MergedSummaries]) -> MergedSummaries:
    merged = MergedSummaries()
    for part in parts:
        if isinstance(part, RankSummary):
            merged.add(part)
        else:
            merged.unite(part)
    return merged
