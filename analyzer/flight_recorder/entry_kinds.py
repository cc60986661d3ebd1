"""Entries by their kinds: what those of one kind have in common, and the numbers of each.

The bytes before, between and behind the numbers are compared for all entries at once,
so every entry is proved to hold the operations that were walked over in the first of
its kind.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Float64, Int32, Int64
from hanglab.analyzer.flight_recorder.known_kinds import EntryLayout, KnownKinds, UInt8, known_kinds
from hanglab.analyzer.flight_recorder.pickle_walk import (
    COLUMNS,
    NUMBERS,
    EntryKind,
    Keys,
    Walk,
    opcode_and_size,
    walk,
)

_LONG, _FLOAT = 0x8A, ord("G")
#: How a number of that many bytes is to be read, by its opcode.
_FORMS = {
    (ord("K"), 1): "<u1",
    (ord("M"), 2): "<u2",
    (ord("J"), 4): "<i4",
    (_LONG, 8): "<i8",
    (_FLOAT, 8): ">f8",
}

#: Of a value that is remembered: under an index that is given, or under the next free one.
PUT = rb"(?:q.|r.{4}|\x94)?"


class WrongKinds(Exception):
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
            raise WrongKinds("another number of entries")
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
                raise WrongKinds(column.name)
            numbers[self.kept] = values
            columns[column.name] = numbers
        record = columns["record_id"]
        if (record[1:] < record[:-1]).any():
            raise WrongKinds("out of order")
        return replace(entries, **columns)


@dataclass
class Ring:
    """A pickle by its parts: what precedes the entries, the first, most of them, the last."""

    data: bytes
    begin: int
    starts: Int64
    prefix: Walk
    first: EntryKind
    last: EntryKind
    known: KnownKinds

    @classmethod
    def of(cls, data: bytes, begin: int) -> Ring | None:
        prefix = walk(data, 2, begin, {})
        opening = re.compile(rb"\}" + PUT + rb"\([X\x8c]", re.DOTALL).match(data, begin)
        if prefix is None or opening is None:
            return None
        key = _first_key(data, opening.end() - 1, prefix.memoized, begin)
        if key is None:
            return None
        get = b"h%c" % key if key < 256 else b"j" + key.to_bytes(4, "little")
        starts = _starts(data, b"(" + get, begin + 1)
        if len(starts) < 2 or data[-1:] != b".":
            return None
        first = known_kinds(()).of_one(data[begin : int(starts[0])])
        if first is None or (len(first.puts) and first.memoized):
            return None
        known = known_kinds(_keys(data, begin, int(starts[0]), prefix, first))
        last = known.of_one(data[int(starts[-1]) : -1])
        return None if last is None else cls(data, begin, starts, prefix, first, last, known)

    def kinds(self) -> tuple[Int64, list[EntryKind]] | None:
        """Index of the kind of each entry but the first and the last; None if too many."""
        bulk, ends = self.starts[:-1], self.starts[1:]
        numbers: defaultdict[bytes, int] = defaultdict(count().__next__)
        found: dict[bytes, EntryKind] = {}
        kind: Int64 = np.empty(len(bulk), dtype=np.int64)
        lengths = ends - bulk
        order = np.argsort(lengths, kind="stable")
        bounds = np.flatnonzero(np.diff(lengths[order])) + 1
        for rows in np.split(order, bounds):
            size = int(lengths[rows[0]])
            layouts = self.known.layouts(size)
            stretches: UInt8 = np.ndarray(
                (len(self.data) - size + 1, size), np.uint8, self.data, 0, (1, 1)
            )
            tried = 0
            while len(rows):
                entries = stretches[bulk[rows]]
                if tried == len(layouts):
                    start = int(bulk[rows[0]])
                    like = self.known.kind(self.data[start : start + size])
                    if like is None or len(numbers) * 2 > len(bulk):
                        return None
                    layouts.append(EntryLayout.of(like, size))
                layout = layouts[tried]
                tried += 1
                alike = (entries[:, layout.places] == layout.opcodes).all(axis=1)
                fit = np.flatnonzero(alike)
                if not len(fit):
                    continue
                if len(fit) < len(rows):
                    entries = entries[fit]
                entries &= layout.kept
                pieces = entries.view(f"V{size}").ravel().tolist()
                strange = set()
                for piece in set(pieces):
                    like = self.known.kind(piece)
                    if like is None or like.mask != layout.mask:
                        strange.add(piece)
                    else:
                        found[piece] = like
                if strange:
                    fit = fit[[piece not in strange for piece in pieces]]
                    pieces = [piece for piece in pieces if piece not in strange]
                kind[rows[fit]] = np.fromiter(
                    map(numbers.__getitem__, pieces), np.int64, len(pieces)
                )
                rows = rows[:0] if len(fit) == len(rows) else np.delete(rows, fit)
        if len(numbers) * 2 > len(bulk):
            return None
        return kind, [found[piece] for piece in numbers]

    def thinned(self, kind: Int64, kinds: list[EntryKind]) -> Thinned | None:
        _, place, like = np.unique(kind, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(place))
        like, place = rank[like], np.sort(place)
        kinds = [kinds[k] for k in kind[place].tolist()]
        kept = self._kept(like, place, kinds)
        if kept is None:
            return None
        spots, numbers = self._numbers(like, kinds)
        if "record_id" not in numbers:
            return None
        total = len(self.starts) + 1
        all_like = np.empty(total, dtype=np.int32)
        all_like[0], all_like[-1] = 0, len(place) + 1
        all_like[1:-1] = like + 1
        return Thinned(
            data=kept,
            kept=np.concatenate(([0], place + 1, [total - 1])),
            like=all_like,
            numbers=numbers,
            begin=self.begin,
            starts=self.starts,
            spots=spots,
        )

    def _kept(self, like: Int64, place: Int64, kinds: list[EntryKind]) -> bytes | None:
        """The pickle with the first entry of each kind; None if the memo would differ."""
        data, bulk = self.data, self.starts[:-1]
        parts = [self.first, self.last, *kinds]
        explicit = bool(self.prefix.puts) or any(len(part.puts) for part in parts)
        implicit = bool(self.prefix.memoized) or any(part.memoized for part in parts)
        if explicit and (implicit or not self._ascend(like, kinds)):
            return None
        ends = self.starts[1:]
        pieces = [data[: int(self.starts[0])]]
        if not implicit:
            pieces += [data[s:e] for s, e in zip(bulk[place], ends[place], strict=True)]
            return b"".join([*pieces, data[int(self.starts[-1]) :]])
        # The places of the memo that the others would have filled are filled with nothing.
        before = self.prefix.memoized + self.first.memoized
        each = np.array([k.memoized for k in kinds], dtype=np.int64)[like]
        base = before + np.concatenate(([0], np.cumsum(each)))
        filled = [(0, before)]
        at = before
        for number, start, end in zip(
            place.tolist(), bulk[place].tolist(), ends[place].tolist(), strict=True
        ):
            pieces += [_fill(int(base[number]) - at), data[start:end]]
            at = int(base[number + 1])
            filled.append((int(base[number]), at))
        pieces += [_fill(int(base[-1]) - at), data[int(self.starts[-1]) :]]
        filled.append((int(base[-1]), int(base[-1]) + self.last.memoized))
        gets = self.last.gets.union(*(k.gets for k in kinds if k.highest_get >= before))
        begins = np.array([begin for begin, _ in filled])
        for get in gets:
            if get >= filled[int(np.searchsorted(begins, get, side="right")) - 1][1]:
                return None
        return b"".join(pieces)

    def _ascend(self, like: Int64, kinds: list[EntryKind]) -> bool:
        """True if each memo index is higher than the one before, so that none is used twice."""
        counts = np.array([len(kind.puts) for kind in kinds], dtype=np.int64)
        begins = np.cumsum(counts) - counts
        each = counts[like]
        within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
        which = np.repeat(begins[like], each) + within
        at, size = np.concatenate([kind.puts for kind in kinds]).T
        places = np.repeat(self.starts[:-1], each) + at[which]
        # The last entry follows: there are four bytes from each place on.
        bits = np.where(size == 1, 0xFF, 0xFFFF_FFFF).astype(np.uint32)
        bulk = _everywhere(self.data, "<u4")[places] & bits[which]
        indices = np.concatenate(
            (
                _indices(self.data, 2, np.array(self.prefix.puts, np.int64).reshape(-1, 2)),
                _indices(self.data, self.begin, self.first.puts),
                bulk,
                _indices(self.data, int(self.starts[-1]), self.last.puts),
            )
        )
        return bool((np.diff(indices.astype(np.int64)) > 0).all())

    def _numbers(
        self, like: Int64, kinds: list[EntryKind]
    ) -> tuple[dict[str, Int64], dict[str, Int64 | Float64]]:
        """Places of numbers, and their values, by column."""
        spots: dict[str, Int64] = {}
        numbers: dict[str, Int64 | Float64] = {}
        firsts = {n.column: n.at + self.begin for n in self.first.numbers}
        table = np.stack([kind.spots for kind in kinds])
        for column, (places, forms) in zip(COLUMNS, table.transpose(1, 2, 0), strict=True):
            at = places[like]
            opcodes = np.where(at >= 0, self.starts[:-1] + at, 0)
            values: Int64 | Float64
            if column == "duration_ms":
                values = np.full(len(like) + 2, np.nan)
            else:
                values = np.full(len(like) + 2, ABSENT, dtype=np.int64)
            written = set(forms.tolist()) - {-1}
            for how in written:
                code, width = opcode_and_size(how)
                if (code == _FLOAT) != (column == "duration_ms"):
                    return {}, {}
                if width:
                    rows = np.flatnonzero((forms == how)[like])
                    values[rows + 1] = self._read(opcodes[rows], code, width)
            if written:
                spots[column] = np.concatenate(([firsts.get(column, 0)], opcodes))
                numbers[column] = values
        return spots, numbers

    def _read(self, opcodes: Int64, opcode: int, width: int) -> npt.NDArray[Any]:
        """The numbers at ``opcodes``."""
        form = _FORMS.get((opcode, width))
        if form is not None:
            values: npt.NDArray[Any] = _everywhere(self.data, form)[
                opcodes + (2 if opcode == _LONG else 1)
            ]
            return values
        # Python writes as few bytes of a long integer as will do.
        ends = opcodes + 2 + width
        d = np.frombuffer(self.data, dtype=np.uint8)
        padded = np.where(d[ends - 1] >= 128, -1, 0).astype(np.int64)
        for place in range(1, width + 1):
            padded = (padded << 8) | d[ends - place]
        return padded


def _fill(places: int) -> bytes:
    return b"N" + b"\x94" * places + b"0" if places else b""


def _indices(data: bytes, begin: int, puts: Int64) -> Int64:
    """Explicit memo indices of a stretch."""
    found = [
        int.from_bytes(data[begin + at : begin + at + size], "little") for at, size in puts.tolist()
    ]
    return np.array(found, dtype=np.int64)


def _everywhere(data: bytes, form: str) -> npt.NDArray[Any]:
    """One number from every byte of ``data`` on."""
    size = np.dtype(form).itemsize
    view: npt.NDArray[Any] = np.ndarray((len(data) - size + 1,), form, data, 0, (1,))
    return view


def _starts(data: bytes, opening: bytes, begin: int) -> Int64:
    """Places of dictionaries whose first key is got, by what may stand before ``opening``."""
    d = np.frombuffer(data, dtype=np.uint8)
    first = begin + 6
    at = np.flatnonzero(d[first : len(d) - len(opening)] == opening[0]) + first
    for place, byte in enumerate(opening[1:], start=1):
        at = at[d[at + place] == byte]
    starts: Int64 = np.full(len(at), -1, dtype=np.int64)
    for put, ahead in ((None, 1), (0x94, 2), (ord("q"), 3), (ord("r"), 6)):
        fits = d[at - ahead] == ord("}")
        if put is not None:
            fits &= d[at - ahead + 1] == put
        starts = np.where(fits & (starts < 0), at - ahead, starts)
    return starts[starts >= 0]


def _first_key(data: bytes, at: int, memoized: int, begin: int) -> int | None:
    """The place in the memo of the text at ``at``, the first key of the first entry."""
    head = 5 if data[at] == ord("X") else 2
    after = at + head + int.from_bytes(data[at + 1 : at + head], "little")
    put = data[after : after + 1]
    if put == b"q":
        return data[after + 1]
    if put == b"r":
        return int.from_bytes(data[after + 1 : after + 5], "little")
    # The entry itself is remembered before its keys are.
    return memoized + (data[begin + 1] == 0x94) if put == b"\x94" else None


def _keys(data: bytes, begin: int, end: int, prefix: Walk, first: EntryKind) -> Keys:
    """Memo places of the names of columns."""
    explicit = _indices(data, begin, first.puts).tolist()
    found = {
        explicit[before] if explicit else prefix.memoized + before: NUMBERS[text]
        for text, before in first.keys
        if text in NUMBERS
    }
    if explicit:
        # An operation that was timed may come later than the first.
        for name in set(NUMBERS) - {text for text, _ in first.keys}:
            literal = b"X" + len(name).to_bytes(4, "little") + name
            at = data.find(literal, end) + len(literal)
            if at >= len(literal) and data[at : at + 1] in (b"q", b"r"):
                size = 1 if data[at : at + 1] == b"q" else 4
                found[int.from_bytes(data[at + 1 : at + 1 + size], "little")] = NUMBERS[name]
    return tuple(sorted(found.items()))
