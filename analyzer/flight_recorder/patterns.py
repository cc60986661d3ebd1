"""Bytes that dumps of ranks of one program have in common, and each one's own numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    TABLES,
    Entries,
    Float64,
    GroupName,
    Int32,
    Int64,
)
from hanglab.analyzer.flight_recorder.entry_kinds import WrongKinds
from hanglab.analyzer.flight_recorder.known_kinds import UInt8

#: Bytes that are compared before all are.
_GLANCE = 2048


@dataclass
class Column:
    """Places of the numbers of one column, by their form; rows ascend in each."""

    name: str
    forms: list[tuple[str, Int64, Int64]]

    def read(self, data: bytes, begin: int, count: int) -> Int64 | Float64:
        """The numbers of the first ``count`` entries."""
        values: Int64 | Float64
        if self.name == "duration_ms":
            values = np.full(count, np.nan)
        else:
            values = np.full(count, ABSENT, dtype=np.int64)
        for form, rows, places in self.forms:
            dtype = np.dtype(form)
            # One number from every byte on.
            shape = (len(data) - dtype.itemsize + 1 - begin,)
            view: npt.NDArray[Any] = np.ndarray(shape, dtype, data, begin, (1,))
            within = int(np.searchsorted(rows, count))
            if within == count:
                found: npt.NDArray[Any] = view[places[:within]].astype(values.dtype)
                return found
            values[rows[:within]] = view[places[:within]]
        return values


@dataclass(eq=False)
class Pattern:
    """A dump's entries up to the last one; places count from the first entry's beginning."""

    #: All bytes up to the last entry.
    text: UInt8
    #: 0 where there is a number, else 255.
    mask: UInt8
    #: Where entries end.
    ends: Int64
    like: Int32
    columns: list[Column]
    #: One entry of each kind, by order of appearance.
    kinds: Entries
    #: Their first places among all entries.
    firsts: Int64
    #: Begin, end, and last place in the memo that is filled, of entries that fill any.
    puts: list[tuple[int, int, int]]
    first_put: int
    #: Places in the memo that were filled before the first entry and are asked for.
    asked: list[int]
    #: Of those, the ones that are not only the names and descriptions of groups.
    fixed: dict[int, str]
    #: By group: the places in the memo of its name and description, or their text.
    pairs: list[tuple[int | str, int | str]]
    tables: dict[str, dict[Any, int]]

    def agreement(self, tail: UInt8) -> int:
        """Number of bytes that agree but for numbers."""
        for size in (_GLANCE, len(self.text)):
            size = min(size, len(self.text), len(tail))
            differing = tail[:size] ^ self.text[:size]
            differing &= self.mask[:size]
            place = int((differing != 0).argmax()) if size else 0
            if not size or differing[place]:
                return place
        return size

    def group_names(self, texts: dict[int, str]) -> list[GroupName] | None:
        """The groups by this dump's names; None where they are not told apart as elsewhere."""
        names = [
            GroupName(*(part if isinstance(part, str) else texts[part] for part in pair))
            for pair in self.pairs
        ]
        if len(set(names)) < len(names) or not all(n.description for n in names):
            return None
        if any(len(text) > 1000 for text in texts.values()):
            return None
        return names

    def join(
        self, data: bytes, begin: int, count: int, groups: list[GroupName], rest: Entries
    ) -> Entries:
        """The first ``count`` entries, by their kinds, and the rest.  Raises Mistaken."""
        kinds, like = self.kinds, self.like[:count]
        used = int(np.searchsorted(self.firsts, count))
        columns: dict[str, Any] = {
            column.name: np.concatenate(
                (column.read(data, begin, count), getattr(rest, column.name))
            )
            for column in self.columns
        }
        for column in fields(rest):
            name, mine = column.name, getattr(kinds, column.name)
            if name in columns or not isinstance(mine, np.ndarray):
                continue
            others = getattr(rest, name)
            table = TABLES.get(name)
            if table is not None:
                cut = max(int(mine[:used].max()) + 1, 0)
                whole = (groups if name == "group" else getattr(kinds, table))[:cut]
                index = self.tables[table]
                if name == "group":
                    index = {value: number for number, value in enumerate(whole)}
                others = _extend(whole, index, cut, getattr(rest, table), others)
                columns[table] = whole
            columns[name] = np.concatenate((mine[like], others))
        record = columns["record_id"]
        if (record[1:] < record[:-1]).any():
            raise WrongKinds("out of order")
        return Entries(**columns)


def _extend(
    whole: list[Any], index: dict[Any, int], cut: int, more: list[Any], indices: Int32
) -> Int32:
    """Puts ``more`` behind ``whole``, each once; ``indices`` into ``more`` become such into it."""
    renumbered = []
    for value in more:
        number = index.get(value, cut)
        if number >= cut:
            number = len(whole)
            whole.append(value)
        renumbered.append(number)
    # ABSENT is the last one.
    return np.array([*renumbered, ABSENT], dtype=np.int32)[indices]
