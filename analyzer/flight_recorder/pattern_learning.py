"""Learn from a dump the pattern of those that may be like it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, TABLES, Entries
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.analyzer.flight_recorder.entry_kinds import Thinned
from hanglab.analyzer.flight_recorder.known_kinds import UInt8
from hanglab.analyzer.flight_recorder.memo_queries import Marks
from hanglab.analyzer.flight_recorder.pattern_scan import PLAIN, RUN, Scan, key_at, written
from hanglab.analyzer.flight_recorder.patterns import Column, Pattern
from hanglab.analyzer.flight_recorder.ring import read_entries

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
_Pair = tuple[int, int]


def learn_pattern(
    data: bytes, thinned: Thinned, entries: Entries, marks: Marks, decode: Decode
) -> Pattern | None:
    """Pattern of ``data``, of which ``thinned`` and ``entries`` were made; None without one."""
    pattern = _pattern_of(data, thinned, marks, decode)
    return pattern if pattern and _confirms(pattern, data, thinned.begin, entries) else None


def _pattern_of(data: bytes, thinned: Thinned, marks: Marks, decode: Decode) -> Pattern | None:
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
    pairs: list[_Pair] = []
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
    decoded = decode(b"".join([data[:begin], *marks.row(early), *pieces, *marks.row(late), b"eu."]))
    values = marks.values(decoded, len(early))
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
    by_group: dict[int, _Pair] = {}
    for group, pair in zip(kinds.group.tolist(), pairs, strict=True):
        if by_group.setdefault(group, pair) != pair:
            return None
    columns, mask = _plan(data, thinned)
    return Pattern(
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
            for table in TABLES.values()
        },
    )


def _confirms(pattern: Pattern, data: bytes, begin: int, entries: Entries) -> bool:
    """True if a dump says by itself what was read of it before."""
    count = len(entries) - 1
    numbers = {column.name: column.read(data, begin, count) for column in pattern.columns}
    for column in fields(entries):
        values = getattr(entries, column.name)
        if not isinstance(values, np.ndarray):
            continue
        mine = numbers.get(column.name)
        if mine is None:
            mine = getattr(pattern.kinds, column.name)[pattern.like]
        if not np.array_equal(mine, values[:count], equal_nan=column.name == "duration_ms"):
            return False
    return all(
        getattr(entries, table)[: len(getattr(pattern.kinds, table))]
        == getattr(pattern.kinds, table)
        for table in TABLES.values()
        if table != "group_names"
    )


def _gets_of(
    data: bytes, start: int, end: int, process_group: int
) -> tuple[set[bytes], set[bytes], _Pair | None]:
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


def _plan(data: bytes, thinned: Thinned) -> tuple[list[Column], UInt8]:
    """Places of the numbers of all entries but the last, and the mask that hides them."""
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
        columns.append(Column(name, forms))
    return columns, mask
