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

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Float64, Int32, Int64
from hanglab.analyzer.flight_recorder.interning import intern

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
_GET, _FLOAT, _DICT, _MARK, _END_OF_DICT = b"hG}(u"
_UNKNOWN = 9
#: Bytes of an integer by its opcode, and how they are to be read.
_WIDTH = np.full(256, _UNKNOWN, dtype=np.intp)
_WIDTH[list(b"NKMJ\x8a")] = (0, 1, 2, 4, 8)
_FORM = {1: "<u1", 2: "<u2", 4: "<i4", 8: "<i8"}
#: Operations of plain data that have a length of their own and leave the memo alone.
PLAIN = rb"(?:h.|j.{4}|K.|M.{2}|J.{4}|\x8a\x08.{8}|G.{8}|[](})eutNa\x85\x86\x87\x88\x89])"
RUN = re.compile(PLAIN + b"*", re.DOTALL)
_INTEGER = rb"(?:K.|M.{2}|J.{4}|\x8a\x08.{8}|N)"

UInt8 = npt.NDArray[np.uint8]

#: So many distances from one number to the next are tried.
_DISTANCES = 64

#: Places in the memo of the keys that have numbers, with the keys.
Found = tuple[tuple[int, bytes], ...]


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
    #: Where the first entry begins, and where all later ones do.
    begin: int
    starts: Int64
    #: By column, where the numbers of all but the last entry stand, 0 where one has none.
    spots: dict[str, Int64]

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
    begin = find_entries(data)
    if begin is None:
        return None
    first = key_at(data, begin + 2)
    if first is None:
        return None
    scan = Scan(data)
    if not scan.reaches(2, begin):
        return None
    d = np.frombuffer(data, dtype=np.uint8)
    starts = _starts(d, begin, first)
    if len(starts) < few:
        return None
    bulk, ends = starts[:-1], starts[1:]
    numbers = _Numbers(data, d, begin, int(starts[0]))
    if not numbers.read(bulk, ends):
        return None
    blank = numbers.blank.tobytes()
    like, pieces = intern(
        list(map(blank.__getitem__, map(slice, bulk.tolist(), ends.tolist()))),
    )
    if len(pieces) * 2 > len(bulk):
        return None
    place = np.zeros(len(pieces), dtype=np.int64)
    # Of equal indices the last one assigned counts: the first of its kind.
    place[like[::-1]] = np.arange(len(bulk) - 1, -1, -1)
    offsets = numbers.places - bulk
    if not np.array_equal(offsets, offsets[:, place[like]]):
        return None
    alone = np.bincount(like) == 1
    if not scan.reaches(begin, int(starts[0])):
        return None
    kept_pieces = [data[begin : starts[0]]]
    for number, (at, mine) in enumerate(
        zip(place.tolist(), offsets[:, place].T.tolist(), strict=True)
    ):
        start, end = int(bulk[at]), int(ends[at])
        if not _stands(numbers.found, pieces[number], tuple(mine)):
            # A text that is written here for the first time, then.
            if not (alone[number] and scan.reaches(start, end)):
                return None
        kept_pieces.append(data[start:end])
    last = int(starts[-1])
    if data[-1:] != b"." or not scan.reaches(last, len(data) - 1):
        return None
    count = len(starts) + 1
    all_like = np.empty(count, dtype=np.int32)
    all_like[0], all_like[-1] = 0, len(pieces) + 1
    all_like[1:-1] = like + 1
    return Thinned(
        data=data[:begin] + b"".join(kept_pieces) + data[last:],
        kept=np.concatenate(([0], place + 1, [count - 1])),
        like=all_like,
        numbers=numbers.columns(count),
        begin=begin,
        starts=starts,
        spots=numbers.spots(begin, int(starts[0])),
    )


def find_entries(data: bytes) -> int | None:
    """Where the first entry begins, if that can be seen."""
    found = _ENTRIES.search(data)
    return None if found is None or data[:2] != b"\x80\x02" else found.end()


def written(data: bytes, text: bytes, begin: int, end: int) -> int:
    """Where a text is written out, -1 if nowhere."""
    return data.find(b"X" + len(text).to_bytes(4, "little") + text, begin, end)


def _key_of(data: bytes, at: int, name: bytes) -> list[tuple[int, bytes]]:
    key = key_at(data, at) if at >= 0 else None
    return [] if key is None else [(key, name)]


def key_at(data: bytes, at: int) -> int | None:
    """The place in the memo of the text that is written at ``at``; None beyond 255."""
    after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    return data[after + 1] if data[after : after + 1] == b"q" and after + 1 < len(data) else None


class Scan:
    """Follows operations one by one: what it has passed is nothing but plain data.

    No place of the memo may be filled twice, so a place means the same to all entries.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.last_put = -1
        #: Places that were filled, as far as nobody has cleared this.
        self.puts: list[int] = []

    def reaches(self, start: int, end: int) -> bool:
        """Whether an operation ends at ``end`` if one begins at ``start``."""
        data, at = self._data, start
        while at < end:
            at = RUN.match(data, at, end).end()  # type: ignore[union-attr]
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
            if put <= self.last_put:
                return False
            self.last_put = put
            self.puts.append(put)
            at += size
        return at == end


def _starts(d: UInt8, begin: int, key: int) -> Int64:
    """Where entries after the first one seem to begin, at the end of the one before."""
    ends = np.flatnonzero(d[begin:-4] == _END_OF_DICT) + begin
    for offset, byte in enumerate((_DICT, _MARK, _GET, key), 1):
        ends = ends[d[ends + offset] == byte]
    return ends + 1


class _Numbers:
    """The numbers of all entries but the first and the last."""

    def __init__(self, data: bytes, d: UInt8, begin: int, end: int) -> None:
        self._data, self._d = data, d
        #: The bytes without the numbers.
        self.blank = d.copy()
        found: list[tuple[int, bytes]] = []
        places = {name: written(data, name, begin, end) for name in _COLUMNS}
        for at, name in sorted((at, name) for name, at in places.items()):
            found += _key_of(data, at, name)
            if name == b"time_created_ns":
                # Only operations that were timed have one, and the first may be none of them.
                at = written(data, _DURATION, begin, len(data))
                found += _key_of(data, at, _DURATION)
        #: Keys and names in the order in which entries have them.
        self.found = tuple(found)
        self._values: dict[str, Int64 | Float64] = {}
        self._places: list[Int64] = []
        self._spots: dict[str, Int64] = {}

    @property
    def places(self) -> Int64:
        """Where the numbers stand, of shape ``(numbers, entries)``."""
        return np.array(self._places)

    def read(self, starts: Int64, ends: Int64) -> bool:
        """Read, and blank, every number; False if some entry lacks one."""
        at = starts
        for key, name in self.found:
            if name == _DURATION:
                at = self._read_durations(key, at, ends)
                continue
            found = self._find(key, at, ends)
            if found is None:
                return False
            at = found + 2
            widths = _WIDTH[self._d[at]]
            there = np.flatnonzero(np.bincount(widths)).tolist()
            # The longest one is ten bytes with its opcode.
            if there[-1] == _UNKNOWN or int((ends - at).min()) < 10:
                return False
            if len(there) == 1:
                values = self._read_alike(at, there[0])
            else:
                values = np.empty(len(at), dtype=np.int64)
                for width in there:
                    mine = np.flatnonzero(widths == width)
                    values[mine] = self._read_alike(at[mine], width)
            if 8 in there and bool((self._d[at[widths == 8] + 1] != 8).any()):
                return False
            self._values[_COLUMNS[name]] = values
            self._places.append(at)
            self._spots[_COLUMNS[name]] = at
            at = at + 1 + widths + (widths == 8)
        return "record_id" in self._values

    def _read_alike(self, at: Int64, width: int) -> Int64:
        if not width:
            return np.full(len(at), ABSENT, dtype=np.int64)
        return self._take(at + (2 if width == 8 else 1), _FORM[width]).astype(np.int64)

    def _take(self, places: Int64, form: str) -> npt.NDArray[Any]:
        """The numbers at ``places``, which are blanked."""
        bytes_of_each = places[:, None] + np.arange(np.dtype(form).itemsize)
        values: npt.NDArray[Any] = self._d[bytes_of_each].view(form)[:, 0]
        self.blank[bytes_of_each] = 0
        return values

    def _find(self, key: int, at: Int64, ends: Int64) -> Int64 | None:
        """Where each entry has a key, at ``at`` or later.

        Entries of one kind have it equally far on, so there are few distances to try.
        """
        d, pair = self._d, b"h%c" % key
        found: Int64 = at.copy()
        left = np.flatnonzero((d[at] != _GET) | (d[at + 1] != key))
        for _ in range(_DISTANCES):
            if not len(left):
                return found
            first = int(left[0])
            there = self._data.find(pair, int(at[first]), int(ends[first]))
            if there < 0:
                return None
            places = at[left] + (there - int(at[first]))
            inside = np.minimum(places, ends[left] - 2)
            good = (d[inside] == _GET) & (d[inside + 1] == key) & (inside == places)
            found[left[good]] = places[good]
            left = left[~good]
        return None

    def _read_durations(self, key: int, at: Int64, ends: Int64) -> Int64:
        """They stand right behind the time of creation."""
        d = self._d
        there = (d[at] == _GET) & (d[at + 1] == key) & (d[at + 2] == _FLOAT) & (at + 11 <= ends)
        values = np.full(len(at), np.nan)
        values[there] = self._take(at[there] + 3, ">f8")
        self._values["duration_ms"] = values
        self._spots["duration_ms"] = np.where(there, at + 2, 0)
        return at + np.where(there, 11, 0)

    def spots(self, begin: int, end: int) -> dict[str, Int64]:
        """Where the numbers of the first entry, from ``begin`` to ``end``, and of these stand."""
        found: dict[str, Int64] = {}
        names = {column: name for name, column in (_COLUMNS | {_DURATION: "duration_ms"}).items()}
        for column, spots in self._spots.items():
            name = names[column]
            at = written(self._data, name, begin, end)
            found[column] = np.concatenate(([at + 7 + len(name) if at >= 0 else 0], spots))
        return found

    def columns(self, count: int) -> dict[str, Int64 | Float64]:
        columns: dict[str, Int64 | Float64] = {}
        for name, values in self._values.items():
            # The first and the last one are read elsewhere.
            column = np.zeros(count, dtype=values.dtype)
            column[1:-1] = values
            columns[name] = column  # type: ignore[assignment]
        return columns


@lru_cache(maxsize=4096)
def _stands(found: Found, piece: bytes, offsets: tuple[int, ...]) -> bool:
    """Whether ``piece`` is one entry of plain data with its numbers at ``offsets``.

    The same kinds come again in the dumps of other ranks.
    """
    whole = _form(found).fullmatch(piece)
    return whole is not None and offsets == tuple(map(whole.start, range(1, len(offsets) + 1)))


@lru_cache(maxsize=64)
def _form(found: Found) -> re.Pattern[bytes]:
    def parts() -> Iterator[bytes]:
        yield rb"\}\("
        for key, name in found:
            get = re.escape(b"h%c" % key)
            if name == _DURATION:
                yield b"(?:" + get + rb"G.{8})?"
            else:
                yield b"(?:(?!" + get + b")" + PLAIN + b")*" + get + b"(" + _INTEGER + b")"
        yield PLAIN + b"*"

    return re.compile(b"".join(parts()), re.DOTALL)
