"""Reads a dump by what a dump with the same bytes has taught.

The ranks of a job run the same program, so their dumps differ in the names and
members of groups, in numbers, and at the end.  What one dump's entries are, apart
from their numbers, is therefore kept, and the next dump is compared with it byte
for byte: as far as the bytes agree, its entries are of the same kinds, and only
the numbers are read.  The rest is decoded.  Whatever is not exactly as expected
is left to the ordinary way, so no dump can change what another one says.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.dumps.columns import ABSENT, Entries, Float64, GroupName, Int32, Int64
from hanglab.analyzer.dumps.decoding import Decoded
from hanglab.analyzer.dumps.repetition import (
    PLAIN,
    RUN,
    Mistaken,
    Scan,
    Thinned,
    UInt8,
    find_entries,
    key_at,
    written,
)
from hanglab.analyzer.dumps.ring import read_entries

#: Dumps that are kept, and so many of them are made for nothing before no more are.
_KEPT = 12
#: Bytes that are compared before all are.
_GLANCE = 2048
#: Entries that must agree, and the share of the bytes.
_LEAST = 64
_SHARE = 0.75
#: The longest dump that is kept.
_LONGEST = 8 << 20
_TABLES = {
    "group": "group_names",
    "operation": "operations",
    "argument": "arguments",
    "stack": "stacks",
    "thread": "threads",
}
#: By its opcode, the form of a number and how far behind the opcode it stands.
_FORMS = {
    ord("K"): ("<u1", 1),
    ord("M"): ("<u2", 1),
    ord("J"): ("<i4", 1),
    0x8A: ("<i8", 2),
    ord("G"): (">f8", 1),
}
_TOKENS = re.compile(PLAIN, re.DOTALL)

Decode = Callable[[bytes], Decoded | None]
Pair = tuple[int, int]


@dataclass
class _Column:
    """Where the numbers of one column stand, by their form; rows ascend in each."""

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
class _Known:
    """A dump's entries up to the last one; places count from the first entry's beginning."""

    #: All bytes up to the last entry.
    text: UInt8
    #: 0 where there is a number, else 255.
    mask: UInt8
    #: Where entries end.
    ends: Int64
    like: Int32
    columns: list[_Column]
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


class Likenesses:
    """The dumps that this process has read, as far as others may be like them."""

    def __init__(self, *, least: int = _LEAST) -> None:
        self._known: list[_Known] = []
        self._least = least
        self._nonce = secrets.token_hex(16)
        self._idle = 0

    def recall(
        self, data: bytes, decode: Decode
    ) -> tuple[Decoded, Callable[[Entries], Entries]] | None:
        """What is left to be read of ``data``, and how to make all entries of it."""
        begin = find_entries(data) if self._known else None
        if begin is None:
            return None
        tail = np.frombuffer(data, dtype=np.uint8)[begin:]
        for known in self._known:
            equal = _agreement(known, tail)
            count = int(np.searchsorted(known.ends, equal, side="right"))
            if count < max(self._least, 1) or known.ends[count - 1] < len(tail) * _SHARE:
                continue
            found = self._by(known, data, begin, count, decode)
            if found is not None:
                self._idle = 0
                self._known.remove(known)
                self._known.insert(0, known)
                return found
        return None

    def _by(
        self, known: _Known, data: bytes, begin: int, count: int, decode: Decode
    ) -> tuple[Decoded, Callable[[Entries], Entries]] | None:
        rest = begin + int(known.ends[count - 1])
        scan = Scan(data)
        if data[rest : rest + 2] != b"}(" or not scan.reaches(2, begin):
            return None
        if scan.last_put >= known.first_put:
            return None
        puts = [put for put in known.puts if put[0] < rest - begin]
        scan.last_put = puts[-1][2]
        if data[-1:] != b"." or not scan.reaches(rest, len(data) - 1):
            return None
        kept = [data[begin + start : begin + end] for start, end, _ in puts]
        asked = [b"j" + place.to_bytes(4, "little") for place in known.asked]
        decoded = decode(
            b"".join([data[:begin], *self._marked(asked), *kept, memoryview(data)[rest:]])
        )
        values = self._marked_values(decoded, len(asked))
        if decoded is None or values is None or set(map(type, values)) - {str}:
            return None
        texts = dict(zip(known.asked, values, strict=True))
        if any(texts[place] != text for place, text in known.fixed.items()):
            return None
        rows = decoded.value["entries"]
        if len(rows) <= len(puts) + 1:
            return None
        del rows[: len(puts) + 1]
        groups = _group_names(known, texts)
        if groups is None:
            return None

        def whole(entries: Entries) -> Entries:
            return _join(known, data, begin, count, groups, entries)

        return decoded, whole

    def _marked(self, gets: list[bytes]) -> list[bytes]:
        """Operations that make a row of what they get, which no file can have."""
        nonce = self._nonce.encode()
        return [b"(X", len(nonce).to_bytes(4, "little"), nonce, *gets, b"t"]

    def _marked_values(self, decoded: Decoded | None, count: int) -> list[Any] | None:
        top = decoded.value if decoded is not None else None
        rows = top.get("entries") if type(top) is dict else None
        if type(rows) is not list or not rows or type(rows[0]) is not tuple:
            return None
        nonce, *values = rows[0] or (None,)
        return values if nonce == self._nonce and len(values) == count else None

    def learn(self, data: bytes, thinned: Thinned, entries: Entries, decode: Decode) -> None:
        """Keep what has been read of ``data``, of which ``thinned`` and ``entries`` were made."""
        if self._idle >= _KEPT or len(data) > _LONGEST:
            return
        self._idle += 1
        known = self._known_of(data, thinned, decode)
        if known is not None and _confirms(known, data, thinned.begin, entries):
            self._known.insert(0, known)
            del self._known[_KEPT:]

    def _known_of(self, data: bytes, thinned: Thinned, decode: Decode) -> _Known | None:
        begin, starts = thinned.begin, thinned.starts
        key = written(data, b"process_group", begin, int(starts[0]))
        process_group = key_at(data, key) if key >= 0 else None
        scan = Scan(data)
        if process_group is None or not scan.reaches(2, begin):
            return None
        before = scan.last_put
        ends = starts - begin
        bounds = np.concatenate(([0], ends))
        firsts = thinned.kept[:-1]
        puts: list[tuple[int, int, int]] = []
        first_put = -1
        every: set[bytes] = set()
        most: set[bytes] = set()
        filled: set[int] = set()
        pairs: list[Pair] = []
        for number in firsts.tolist():
            start, end = int(bounds[number]) + begin, int(bounds[number + 1]) + begin
            gets, others, pair = _gets_of(data, start, end, process_group)
            if pair is None:
                return None
            pairs.append(pair)
            scan.puts.clear()
            if not scan.reaches(start, end):
                return None
            if scan.puts:
                first_put = scan.puts[0] if first_put < 0 else first_put
                puts.append((start - begin, end - begin, scan.last_put))
                filled.update(scan.puts)
            every |= gets
            most |= others
        if first_put < 0 or puts[0][0] != 0:
            return None
        asked = _places(every) - filled
        fixed = _places(most) & asked
        if any(place > before for place in asked):
            return None
        order = sorted(asked | {p for pair in pairs for p in pair})
        pieces = [
            data[begin + int(bounds[number]) : begin + int(bounds[number + 1])]
            for number in firsts.tolist()
        ]
        # Those that are filled later are asked for behind the entries.
        late = [b"j" + place.to_bytes(4, "little") for place in order if place in filled]
        early = [b"j" + place.to_bytes(4, "little") for place in order if place not in filled]
        decoded = decode(
            b"".join([data[:begin], *self._marked(early), *pieces, *self._marked(late), b"eu."])
        )
        values = self._marked_values(decoded, len(early))
        if decoded is None or values is None:
            return None
        rows = decoded.value["entries"]
        if len(rows) != len(firsts) + 2 or type(rows[-1]) is not tuple:
            return None
        texts = dict(zip([p for p in order if p not in filled], values, strict=True))
        texts.update(zip([p for p in order if p in filled], rows[-1][1:], strict=True))
        rows = rows[1:-1]
        if set(map(type, texts.values())) - {str} or set(map(type, rows)) != {dict}:
            return None
        for row, (name, description) in zip(rows, pairs, strict=True):
            if row.get("process_group") != (texts[name], texts[description]):
                return None
        kinds = read_entries(rows, {}, from_json=False, contained=True)
        by_group: dict[int, Pair] = {}
        for group, pair in zip(kinds.group.tolist(), pairs, strict=True):
            if by_group.setdefault(group, pair) != pair:
                return None
        columns, mask = _plan(data, thinned)
        return _Known(
            text=np.frombuffer(data, dtype=np.uint8)[begin : begin + int(ends[-1])].copy(),
            mask=mask,
            ends=ends,
            like=thinned.like[:-1],
            columns=columns,
            kinds=kinds,
            firsts=firsts,
            puts=puts,
            first_put=first_put,
            asked=sorted(asked),
            fixed={place: texts[place] for place in sorted(fixed)},
            pairs=[
                (
                    name if name in asked else texts[name],
                    description if description in asked else texts[description],
                )
                for _, (name, description) in sorted(by_group.items())
            ],
            tables={
                table: {value: index for index, value in enumerate(getattr(kinds, table))}
                for table in _TABLES.values()
            },
        )


def _agreement(known: _Known, tail: UInt8) -> int:
    """How many bytes agree but for numbers."""
    for size in (_GLANCE, len(known.text)):
        size = min(size, len(known.text), len(tail))
        differing = tail[:size] ^ known.text[:size]
        differing &= known.mask[:size]
        place = int((differing != 0).argmax()) if size else 0
        if not size or differing[place]:
            return place
    return size


def _confirms(known: _Known, data: bytes, begin: int, entries: Entries) -> bool:
    """Whether a dump says by itself what was read of it before."""
    count = len(entries) - 1
    numbers = {column.name: column.read(data, begin, count) for column in known.columns}
    for column in fields(entries):
        values = getattr(entries, column.name)
        if not isinstance(values, np.ndarray):
            continue
        mine = numbers.get(column.name)
        if mine is None:
            mine = getattr(known.kinds, column.name)[known.like]
        if not np.array_equal(mine, values[:count], equal_nan=column.name == "duration_ms"):
            return False
    return all(
        getattr(entries, table)[: len(getattr(known.kinds, table))] == getattr(known.kinds, table)
        for table in _TABLES.values()
        if table != "group_names"
    )


def _gets_of(
    data: bytes, start: int, end: int, process_group: int
) -> tuple[set[bytes], set[bytes], Pair | None]:
    """Operations of an entry, those that are not for a group's name, and its pair of places."""
    tokens: list[bytes] = []
    at = start
    while at < end:
        run = RUN.match(data, at, end)
        if run is not None:
            tokens += _TOKENS.findall(data, at, run.end())
            at = run.end()
        if at >= end:
            break
        size = {b"q": 2, b"r": 5}.get(data[at : at + 1])
        if size is None:
            size = 5 + int.from_bytes(data[at + 1 : at + 5], "little")
            # The first entry writes texts where it uses them: as if it had got them.
            put = data[at + size : at + size + 2]
            tokens.append(b"h" + put[1:] if put[:1] == b"q" else b"X")
        at += size
    key = b"h%c" % process_group
    gets = set(tokens)
    if tokens.count(key) != 1:
        return gets, gets, None
    place = tokens.index(key)
    pair = [_place(token) for token in tokens[place + 1 : place + 3]]
    if tokens[place + 3 : place + 4] != [b"\x86"] or min(pair) < 0:
        return gets, gets, None
    del tokens[place + 1 : place + 3]
    return gets, set(tokens), (pair[0], pair[1])


def _places(tokens: set[bytes]) -> set[int]:
    return {place for token in tokens if (place := _place(token)) >= 0}


def _place(token: bytes) -> int:
    """The place in the memo that an operation gets; ABSENT if it gets none."""
    return int.from_bytes(token[1:], "little") if token[:1] in (b"h", b"j") else ABSENT


def _group_names(known: _Known, texts: dict[int, str]) -> list[GroupName] | None:
    """The groups by this dump's names; None where they are not told apart as the others were."""
    names = [
        GroupName(*(part if isinstance(part, str) else texts[part] for part in pair))
        for pair in known.pairs
    ]
    if len(set(names)) < len(names) or not all(n.description for n in names):
        return None
    if any(len(text) > 1000 for text in texts.values()):
        return None
    return names


def _plan(data: bytes, thinned: Thinned) -> tuple[list[_Column], UInt8]:
    """How the numbers of all entries but the last are read, and the mask that hides them."""
    d = np.frombuffer(data, dtype=np.uint8)
    begin, end = thinned.begin, int(thinned.starts[-1])
    mask = np.full(end - begin, 255, dtype=np.uint8)
    columns = []
    for name, spots in thinned.spots.items():
        opcodes = d[spots]
        forms = []
        for opcode, (form, ahead) in _FORMS.items():
            rows = np.flatnonzero((opcodes == opcode) & (spots > 0))
            if not len(rows):
                continue
            places = spots[rows] + ahead - begin
            forms.append((form, rows, places))
            mask[places[:, None] + np.arange(np.dtype(form).itemsize)] = 0
        columns.append(_Column(name, forms))
    return columns, mask


def _join(
    known: _Known, data: bytes, begin: int, count: int, groups: list[GroupName], rest: Entries
) -> Entries:
    """The first ``count`` entries, by their kinds, and the rest.  Raises Mistaken."""
    kinds, like = known.kinds, known.like[:count]
    used = int(np.searchsorted(known.firsts, count))
    columns: dict[str, Any] = {
        column.name: np.concatenate((column.read(data, begin, count), getattr(rest, column.name)))
        for column in known.columns
    }
    for column in fields(rest):
        name, mine = column.name, getattr(kinds, column.name)
        if name in columns or not isinstance(mine, np.ndarray):
            continue
        others = getattr(rest, name)
        table = _TABLES.get(name)
        if table is not None:
            cut = max(int(mine[:used].max()) + 1, 0)
            whole = (groups if name == "group" else getattr(kinds, table))[:cut]
            index = known.tables[table]
            if name == "group":
                index = {value: number for number, value in enumerate(whole)}
            others = _extend(whole, index, cut, getattr(rest, table), others)
            columns[table] = whole
        columns[name] = np.concatenate((mine[like], others))
    record = columns["record_id"]
    if (record[1:] < record[:-1]).any():
        raise Mistaken("out of order")
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
