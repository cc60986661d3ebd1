"""Walks over the operations of a pickle that build plain data, without carrying them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

#: Numbers of entries that differ from one to the next, and the columns that they belong to.
NUMBERS: Final = {
    b"record_id": "record_id",
    b"collective_seq_id": "seq",
    b"p2p_seq_id": "p2p_seq",
    b"op_id": "op_id",
    b"time_created_ns": "created_ns",
    b"time_discovered_started_ns": "started_ns",
    b"time_discovered_completed_ns": "completed_ns",
    b"duration_ms": "duration_ms",
}
#: The columns in the order of :attr:`EntryKind.spots`.
COLUMNS: Final = tuple(NUMBERS.values())
#: Memo places of keys, with the columns that the keys belong to.
Keys = tuple[tuple[int, str], ...]

_LONG1, _SHORT_TEXT, _MEMOIZE = 0x8A, 0x8C, 0x94
#: Bytes of an operation by its opcode; 0 where they vary, absent where it is no plain data.
_SIZE: Final = (
    dict.fromkeys(b"](}eutNas\x85\x86\x87\x88\x89\x94", 1)
    | dict.fromkeys(b"hKq", 2)
    | {ord("M"): 3, ord("G"): 9, _LONG1: 0, _SHORT_TEXT: 0, ord("X"): 0}
    | dict.fromkeys(b"jJr", 5)
)
#: By how much an operation changes the height of the stack, where it always does so.
_RISE: Final = (
    dict.fromkeys(b"])}NKMJGhj\x88\x89\x8a\x8cX", 1)
    | dict.fromkeys(b"qr\x94\x85", 0)
    | {ord("a"): -1, ord("s"): -2, 0x86: -1, 0x87: -2}
)
_NUMBER: Final = frozenset(b"NKMJG\x8a")
_DEEPEST = 64
#: No number has so many bytes.
_MOST_BYTES = 16


@dataclass(frozen=True)
class Number:
    """A number of one column: where its opcode stands, from the beginning of the walk."""

    column: str
    at: int
    opcode: int
    #: Where its bytes begin, from the opcode on, and how many they are.
    ahead: int
    size: int


@dataclass
class Walk:
    """Content of a stretch of operations; places count from its beginning."""

    numbers: list[Number] = field(default_factory=list)
    #: (place, size) of the explicit memo index of each value that is remembered.
    puts: list[tuple[int, int]] = field(default_factory=list)
    #: Values that are remembered under the next free index.
    memoized: int = 0
    gets: set[int] = field(default_factory=set)
    #: Keys that are written out and remembered, with the number of values that are remembered
    #: before in the same manner: under an explicit index, or under the next free one.
    keys: list[tuple[bytes, int]] = field(default_factory=list)

    @property
    def mask(self) -> tuple[int, ...]:
        """Places of the bytes that may differ between stretches of one kind."""
        spans = [(n.at + n.ahead, n.size) for n in self.numbers] + self.puts
        return tuple(place for at, size in sorted(spans) for place in range(at, at + size))


def walk(data: bytes, begin: int, end: int, keys: Mapping[int, str]) -> Walk | None:
    """The operations from ``begin`` to ``end``; None where these are not their bounds.

    Numbers are those of the outermost dictionary, if the stretch begins with one.
    ``keys`` gives the columns by the memo places of their names.
    """
    found = Walk()
    heights: list[int] = []
    height, at, column, key = 0, begin, "", b""
    closed = False
    seen: set[str] = set()
    while at < end:
        opcode = data[at]
        size = _SIZE.get(opcode)
        if size is None:
            return None
        text = b""
        if not size:
            if at + 5 > end:
                return None
            if opcode == _LONG1:
                size = 2 + data[at + 1]
                if not 3 <= size <= 10:
                    return None
            else:
                head = 5 if opcode == ord("X") else 2
                size = head + int.from_bytes(data[at + 1 : at + head], "little")
                text = data[at + head : at + size]
        if at + size > end:
            return None
        remembers = opcode in b"qr\x94"
        if len(heights) == 1 and not remembers and not closed:
            if not height % 2:
                column, key = "", text
                if text:
                    column = NUMBERS.get(text, "")
                elif opcode in b"hj":
                    column = keys.get(int.from_bytes(data[at + 1 : at + size], "little"), "")
            elif column and opcode in _NUMBER:
                if column in seen:
                    return None
                seen.add(column)
                ahead = 2 if opcode == _LONG1 else 1
                found.numbers.append(Number(column, at - begin, opcode, ahead, size - ahead))
        if remembers and key:
            before = found.memoized if opcode == _MEMOIZE else len(found.puts)
            found.keys.append((key, before))
        if not (text and key):
            key = b""
        if opcode in b"hj":
            found.gets.add(int.from_bytes(data[at + 1 : at + size], "little"))
        elif opcode == _MEMOIZE:
            found.memoized += 1
        elif remembers:
            found.puts.append((at - begin + 1, size - 1))
        rise = _RISE.get(opcode)
        if rise is not None:
            height += rise
        elif opcode == ord("("):
            if len(heights) >= _DEEPEST:
                return None
            heights.append(height)
            height = 0
        else:  # t, e and u take all since the mark
            # An entry may be followed by the end of a batch that began before it.
            height = heights.pop() if heights else 0
            height += opcode == ord("t")
            closed = closed or not heights
        at += size
    return found


@dataclass(frozen=True, eq=False)
class EntryKind:
    """Bytes that entries have in common that are equal but for their numbers."""

    mask: tuple[int, ...]
    numbers: tuple[Number, ...]
    #: For each of `COLUMNS` where the opcode of its number stands, -1 without one, and its
    #: :func:`form`; shape ``(8, 2)``.
    spots: npt.NDArray[np.int64]
    #: Place and size of each explicit memo index; shape ``(n, 2)``.
    puts: npt.NDArray[np.int64]
    memoized: int
    highest_get: int
    gets: frozenset[int]
    #: As in :class:`Walk`.
    keys: tuple[tuple[bytes, int], ...]


def form(opcode: int, size: int) -> int:
    """A number that stands for how another one is written: its opcode, and its bytes."""
    return opcode * _MOST_BYTES + size


def opcode_and_size(form: int) -> tuple[int, int]:
    """Opcode and size, out of a :func:`form`."""
    return divmod(form, _MOST_BYTES)


def kind_of(piece: bytes, keys: Mapping[int, str]) -> EntryKind | None:
    """The kind of an entry, whose keys have columns by the memo places of their names."""
    found = walk(piece, 0, len(piece), keys)
    if found is None:
        return None
    gets = frozenset(found.gets)
    spots = np.full((len(COLUMNS), 2), -1, dtype=np.int64)
    for number in found.numbers:
        spots[COLUMNS.index(number.column)] = number.at, form(number.opcode, number.size)
    return EntryKind(
        found.mask,
        tuple(found.numbers),
        spots,
        np.array(found.puts, dtype=np.int64).reshape(-1, 2),
        found.memoized,
        max(gets, default=-1),
        gets,
        tuple(found.keys),
    )
