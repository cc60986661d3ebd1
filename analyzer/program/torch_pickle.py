"""Writes plain data byte for byte as torch's pickler in C++ writes a dump.

Read from torch's own dumps: protocol 2; each text once, then by its place in the
memo; lists and dictionaries without a place, unless they are shared, as frames
are; numbers in the shortest of four forms, never in fewer than eight bytes beyond
32 bits.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

_TUPLES = {1: b"\x85", 2: b"\x86", 3: b"\x87"}


class _PickleWriter:
    def __init__(self, uses: Mapping[int, int]) -> None:
        self.pieces = [b"\x80\x02"]
        self._places = 0
        self._texts: dict[str, int] = {}
        #: Dictionary, by identity -> how often it is used, and its place once it is written.
        self._uses = uses
        self._shared: dict[int, int] = {}

    def put(self) -> int:
        place = self._places
        self._places += 1
        short = place < 256
        self.pieces.append(b"q%c" % place if short else b"r" + struct.pack("<I", place))
        return place

    def _get(self, place: int) -> None:
        short = place < 256
        self.pieces.append(b"h%c" % place if short else b"j" + struct.pack("<I", place))

    def write(self, value: Any) -> None:
        if value is None:
            self.pieces.append(b"N")
        elif value is True or value is False:
            self.pieces.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.pieces.append(_integer(value))
        elif isinstance(value, float):
            self.pieces.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self._write_text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.write(item)
            self.pieces.append(_TUPLES[len(value)])
        elif isinstance(value, list):
            self.pieces.append(b"](")
            for item in value:
                self.write(item)
            self.pieces.append(b"e")
        else:
            self._write_dict(value)

    def _write_text(self, text: str) -> None:
        if text in self._texts:
            self._get(self._texts[text])
            return
        data = text.encode()
        self.pieces.append(b"X" + struct.pack("<I", len(data)) + data)
        self._texts[text] = self.put()

    def _write_dict(self, value: Mapping[str, Any]) -> None:
        if id(value) in self._shared:
            self._get(self._shared[id(value)])
            return
        self.pieces.append(b"}(")
        for key, item in value.items():
            self.write(key)
            self.write(item)
        self.pieces.append(b"u")
        if self._uses.get(id(value), 0) > 1:
            self._shared[id(value)] = self.put()


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _count(value: Any, uses: Counter[int]) -> None:
    if isinstance(value, Mapping):
        uses[id(value)] += 1
        if uses[id(value)] == 1:
            for item in value.values():
                _count(item, uses)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _count(item, uses)


def torch_pickle(dump: Mapping[str, Any]) -> bytes:
    """The bytes of ``dump``, which must be plain data and hold itself nowhere."""
    uses: Counter[int] = Counter()
    _count(dump, uses)
    writer = _PickleWriter(uses)
    writer.write(dump)
    writer.put()
    writer.pieces.append(b".")
    return b"".join(writer.pieces)
