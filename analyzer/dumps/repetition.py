"""Spares the making of two thousand objects where most of them are alike.

A ring that torch has written holds few kinds of entries: byte for byte, the
entries of one kind differ in their numbers alone.  Here the numbers are read out
of the bytes, for all entries at once, and a pickle is made in which one entry of
each kind is left; whoever decodes that knows all.  Whatever is not exactly what
torch's pickler writes is left to the ordinary way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.dumps.columns import ABSENT, Entries, Float64, Int32, Int64
from hanglab.analyzer.dumps.interning import intern

#: Fewer entries are decoded faster than told apart.
_FEW = 64
_ENTRIES = re.compile(rb"X\x07\0{3}entries(?:q.|r.{4})\]\((?=\}\(X(.)\0{3})", re.DOTALL)
#: Numbers that differ from entry to entry, and the columns that they belong to.
_COLUMNS = {
    b"record_id": "record_id",
    b"collective_seq_id": "seq",
    b"p2p_seq_id": "p2p_seq",
    b"op_id": "op_id",
    b"time_created_ns": "created_ns",
    b"time_discovered_started_ns": "started_ns",
    b"time_discovered_completed_ns": "completed_ns",
}
_DURATION = b"duration_ms"
_GET, _FLOAT, _LONG = 0x68, 0x47, 0x8A
_UNKNOWN = 255
#: Bytes of an integer by its opcode.
_WIDTH = np.full(256, _UNKNOWN, dtype=np.uint8)
for _opcode, _bytes in ((0x4B, 1), (0x4D, 2), (0x4A, 4), (_LONG, 8), (0x4E, 0)):
    _WIDTH[_opcode] = _bytes
_MASK = np.array([(1 << 8 * width) - 1 for width in range(9)], dtype=np.uint64)
#: Operations of plain data that have a length of their own and leave the memo alone.
_PLAIN = rb"(?:h.|j.{4}|K.|M.{2}|J.{4}|\x8a\x08.{8}|G.{8}|[](})eutNa\x85\x86\x87\x88\x89])"
_RUN = re.compile(_PLAIN + b"*", re.DOTALL)
_INTEGER = rb"(?:K.|M.{2}|J.{4}|\x8a\x08.{8}|N)"

UInt8 = npt.NDArray[np.uint8]


class Mistaken(Exception):
    """The kept entries do not say what was read out of the bytes."""


@dataclass
class Thinned:
    """``data`` is the pickle with ``kept`` of its ``n`` entries left."""

    data: bytes
    #: Places of the kept entries among all, ascending.
    kept: Int64
    #: For each entry the index of the kept one that it is like; shape ``(n,)``.
    like: Int32
    #: Columns of shape ``(n,)``; those of kept entries may be wrong.
    numbers: dict[str, Int64 | Float64]

    def expand(self, entries: Entries) -> Entries:
        """All entries, from the kept ones.  Raises Mistaken."""
        if len(entries) != len(self.kept):
            raise Mistaken("another number of entries")
        columns: dict[str, Any] = {}
        for column in fields(entries):
            values = getattr(entries, column.name)
            if not isinstance(values, np.ndarray):
                continue
            numbers = self.numbers.get(column.name)
            if numbers is None:
                columns[column.name] = values[self.like]
                continue
            # Of kinds with members other than the kept one, both accounts must agree.
            shared = np.bincount(self.like, minlength=len(self.kept)) > 1
            read = numbers[self.kept[shared]]
            if not np.array_equal(read, values[shared], equal_nan=column.name == "duration_ms"):
                raise Mistaken(column.name)
            numbers[self.kept] = values
            columns[column.name] = numbers
        record = columns["record_id"]
        if (record[1:] < record[:-1]).any():
            raise Mistaken("out of order")
        return replace(entries, **columns)


def thin(data: bytes, *, few: int = _FEW) -> Thinned | None:
    """One entry of each kind, and the numbers of all; None where that cannot be proved.

    The first entry, which brings the keys, and the last one, of which nobody
    knows yet where it ends, are always kept.
    """
    found = _ENTRIES.search(data)
    if found is None or data[:2] != b"\x80\x02":
        return None
    begin = found.end()
    first = _key_at(data, begin + 2)
    if first is None:
        return None
    scan = _Scan(data)
    if not scan.reaches(2, begin):
        return None
    d = np.frombuffer(data, dtype=np.uint8)
    gets = np.flatnonzero(d[begin:-1] == _GET) + begin
    keys = d[gets + 1]
    starts = gets[keys == first] - 2
    starts = starts[(d[starts - 1] == 0x75) & (d[starts] == 0x7D) & (d[starts + 1] == 0x28)]
    if len(starts) < few or starts[0] <= begin:
        return None
    bulk, ends = starts[:-1], starts[1:]
    numbers = _Numbers(data, d, gets, keys, begin, int(starts[0]))
    if not numbers.read(bulk, ends):
        return None
    blank = bytes(numbers.blank)
    pieces = list(map(blank.__getitem__, map(slice, bulk.tolist(), ends.tolist())))
    like, kinds = intern(pieces)
    if len(kinds) * 2 > len(bulk):
        return None
    place = np.zeros(len(kinds), dtype=np.int64)
    # Of equal indices the last one assigned counts: the first of its kind.
    place[like[::-1]] = np.arange(len(bulk) - 1, -1, -1)
    alone = np.bincount(like) == 1
    form = numbers.form()
    kept_pieces = [data[begin : starts[0]]]
    if not scan.reaches(begin, int(starts[0])):
        return None
    for number, at in enumerate(place.tolist()):
        start, end = int(bulk[at]), int(ends[at])
        whole = form.fullmatch(data, start, end)
        if whole is not None:
            if not numbers.stand_at(at, whole):
                return None
        elif not (alone[number] and scan.reaches(start, end)):
            return None
        kept_pieces.append(data[start:end])
    last = int(starts[-1])
    if data[-1:] != b"." or not scan.reaches(last, len(data) - 1):
        return None
    count = len(starts) + 1
    all_like = np.empty(count, dtype=np.int32)
    all_like[0], all_like[-1] = 0, len(kinds) + 1
    all_like[1:-1] = like + 1
    return Thinned(
        data=data[:begin] + b"".join(kept_pieces) + data[last:],
        kept=np.concatenate(([0], place + 1, [count - 1])),
        like=all_like,
        numbers=numbers.columns(count),
    )


def _written(data: bytes, text: bytes, begin: int, end: int) -> int:
    """Where a text is written out, -1 if nowhere."""
    return data.find(b"X" + len(text).to_bytes(4, "little") + text, begin, end)


def _key_at(data: bytes, at: int) -> int | None:
    """The place in the memo of the text that is written at ``at``; None beyond 255."""
    after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    return data[after + 1] if data[after : after + 1] == b"q" and after + 1 < len(data) else None


class _Scan:
    """Follows operations one by one: what it has passed is nothing but plain data.

    No place of the memo may be filled twice, so a place means the same to all entries.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._last_put = -1

    def reaches(self, start: int, end: int) -> bool:
        """Whether an operation ends at ``end`` if one begins at ``start``."""
        data, at = self._data, start
        while at < end:
            at = _RUN.match(data, at, end).end()  # type: ignore[union-attr]
            opcode = data[at : at + 1]
            if at >= end:
                break
            if opcode == b"X":
                at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
                continue
            if opcode == b"q":
                put, size = data[at + 1] if at + 1 < end else -1, 2
            elif opcode == b"r":
                put, size = int.from_bytes(data[at + 1 : at + 5], "little"), 5
            else:
                return False
            if put <= self._last_put:
                return False
            self._last_put = put
            at += size
        return at == end


class _Numbers:
    """The numbers of all entries but the first and the last."""

    def __init__(
        self, data: bytes, d: UInt8, gets: Int64, keys: UInt8, begin: int, end: int
    ) -> None:
        self._d, self._gets, self._keys = d, gets, keys
        self._words = _words(data)
        self.blank = bytearray(data)
        #: Keys and names in the order in which entries have them.
        self._found: list[tuple[int, bytes]] = []
        places = {name: _written(data, name, begin, end) for name in _COLUMNS}
        for at, name in sorted((at, name) for name, at in places.items()):
            self._add(data, at, name)
            if name == b"time_created_ns":
                # Only operations that were timed have one, and the first may be none of them.
                self._add(data, _written(data, _DURATION, begin, len(data)), _DURATION)
        self._values: dict[str, Int64 | Float64] = {}
        self._places: list[Int64] = []

    def _add(self, data: bytes, at: int, name: bytes) -> None:
        key = _key_at(data, at) if at >= 0 else None
        if key is not None:
            self._found.append((key, name))

    def read(self, starts: Int64, ends: Int64) -> bool:
        """Read, and blank, every number; False if some entry lacks one."""
        blank = _words(self.blank)
        at = starts
        for key, name in self._found:
            if name == _DURATION:
                at = self._read_durations(key, at, ends, blank)
                continue
            candidates = self._gets[self._keys == key]
            index = np.searchsorted(candidates, at)
            if not len(index) or int(index[-1]) >= len(candidates):
                return False
            at = candidates[index] + 2
            opcodes = self._d[at]
            widths = _WIDTH[opcodes]
            long = opcodes == _LONG
            operands = at + 1 + long
            if bool((widths == _UNKNOWN).any()) or bool((operands + 8 > ends).any()):
                return False
            if bool((self._d[at[long] + 1] != 8).any()):
                return False
            words = self._words[operands]
            masks = _MASK[widths]
            blank[operands] = words & ~masks
            values: Int64 = (words & masks).astype(np.int64)
            four = widths == 4
            values[four] = values[four].astype(np.int32)
            values[widths == 0] = ABSENT
            self._values[_COLUMNS[name]] = values
            self._places.append(at)
            at = operands + widths
        return "record_id" in self._values

    def _read_durations(
        self, key: int, at: Int64, ends: Int64, blank: npt.NDArray[np.uint64]
    ) -> Int64:
        """They stand right behind the time of creation."""
        d = self._d
        there = (d[at] == _GET) & (d[at + 1] == key) & (d[at + 2] == _FLOAT) & (at + 11 <= ends)
        values = np.full(len(at), np.nan)
        places = at[there] + 3
        values[there] = self._words[places].byteswap().view(np.float64)
        blank[places] = 0
        self._values["duration_ms"] = values
        return at + np.where(there, 11, 0)

    def form(self) -> re.Pattern[bytes]:
        """What an entry looks like that has all numbers where they were read."""
        return _form(tuple(self._found))

    def stand_at(self, entry: int, whole: re.Match[bytes]) -> bool:
        """Whether the numbers of an entry were read where it really has them."""
        expected = [int(places[entry]) for places in self._places]
        return [whole.start(1 + number) for number in range(len(expected))] == expected

    def columns(self, count: int) -> dict[str, Int64 | Float64]:
        columns: dict[str, Int64 | Float64] = {}
        for name, values in self._values.items():
            # The first and the last one are read elsewhere.
            column = np.zeros(count, dtype=values.dtype)
            column[1:-1] = values
            columns[name] = column  # type: ignore[assignment]
        return columns


@lru_cache(maxsize=64)
def _form(found: tuple[tuple[int, bytes], ...]) -> re.Pattern[bytes]:
    def parts() -> Iterator[bytes]:
        yield rb"\}\("
        for key, name in found:
            get = re.escape(b"h" + bytes([key]))
            if name == _DURATION:
                yield b"(?:" + get + rb"G.{8})?"
            else:
                yield b"(?:(?!" + get + b")" + _PLAIN + b")*" + get + b"(" + _INTEGER + b")"
        yield _PLAIN + b"*"

    return re.compile(b"".join(parts()), re.DOTALL)


def _words(data: bytes | bytearray) -> npt.NDArray[np.uint64]:
    """At each byte the eight from there on as one little-endian number."""
    words: npt.NDArray[np.uint64]
    words = np.ndarray((max(0, len(data) - 7),), dtype="<u8", buffer=data, strides=(1,))
    return words
