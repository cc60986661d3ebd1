"""Rows of many ranks folded: groups of one kind whose members call the same are one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from hanglab.analyzer.plain_text import shown
from hanglab.analyzer.tables.calls import GroupOfCalls
from hanglab.analyzer.tables.entries import Row


@dataclass
class RowByRanks:
    """A row, and the rows of other groups of its kind in which ranks call the same."""

    row: Row
    label: str
    groups: set[GroupOfCalls] = field(default_factory=set)
    #: By how the call reads: its text, and all ranks that make it.
    ranks: dict[str, tuple[Text, list[int]]] = field(default_factory=dict)

    def add(self, group: GroupOfCalls, texts: Mapping[int, Text]) -> None:
        self.groups.add(group)
        for rank, text in texts.items():
            self.ranks.setdefault(text.plain, (text, []))[1].append(rank)

    def lines(self) -> list[tuple[Text, list[int]]]:
        """Texts and the ranks whose calls read so, the fewest first."""
        return sorted(self.ranks.values(), key=lambda one: len(one[1]))


def rows_by_ranks(
    rows: Iterable[tuple[Row, Mapping[int, Text]]], labels: Mapping[GroupOfCalls, str]
) -> Sequence[RowByRanks]:
    """Rows in their order, those that are alike at the place of the first of them.

    Alike are rows of groups with the same description and as many members, under one number,
    in which the same places of the group call the same; of sends and receives, which have no
    number, the first of each group, the second, and so on.
    """
    found: dict[Hashable, RowByRanks] = {}
    times: Counter[Hashable] = Counter()
    for row, texts in rows:
        kind = _kind(row, texts)
        times[row.group, kind] += 1
        key = kind, times[row.group, kind]
        if key not in found:
            found[key] = RowByRanks(row, labels[row.group])
        found[key].add(row.group, texts)
    for told in found.values():
        if len(told.groups) > 1:
            size = len(told.row.group.members or ())
            told.label = f"{shown(told.row.group.label)} ({len(told.groups):,} groups of {size})"
    return list(found.values())


def _kind(row: Row, texts: Mapping[int, Text]) -> Hashable:
    members = row.group.members
    if members is None:  # nothing tells whose places are the same
        return row.group, row.seq, tuple(sorted((rank, text.plain) for rank, text in texts.items()))
    places = {rank: place for place, rank in enumerate(members)}
    calls = tuple(sorted((places.get(rank, -1), text.plain) for rank, text in texts.items()))
    return row.group.label, len(members), row.seq, row.difference, calls
