"""Decodes JSON dumps, whole ones fast and damaged ones as far as they go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.analyzer.flight_recorder.errors import DumpError

if TYPE_CHECKING:
    from json import JSONDecoder

_SPACE = re.compile(r"[ \t\r\n]*")
_ENTRY_LISTS = frozenset({"entries"})


def decode_json(data: bytes) -> Decoded:
    """The document in ``data``; of a damaged one, the keys and entries before the damage."""
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    try:
        return Decoded(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    import json  # only for what is damaged, or more than msgspec takes: NaN, lone surrogates

    return _salvage(_JsonScan(data.decode("utf-8", "replace"), json.JSONDecoder()))


def _salvage(scan: _JsonScan) -> Decoded:
    value: dict[str, Any] = {}
    damage = ""
    try:
        scan.expect("{")
        while not scan.at("}"):
            key = scan.value()
            if type(key) is not str:
                raise ValueError("has a key that is no text")
            scan.expect(":")
            if key in _ENTRY_LISTS:
                items: list[Any] = []
                value[key] = items
                scan.items(items)
            else:
                value[key] = scan.value()
            if not scan.at(","):
                scan.expect("}")
                break
        scan.end()
    except (ValueError, RecursionError) as reason:
        what = "nests too deeply" if isinstance(reason, RecursionError) else "stops making sense"
        damage = f"{what} at character {scan.pos} of {len(scan.text)}"
    if not value:
        raise DumpError(f"not a dump: JSON that {damage or 'holds nothing'}")
    return Decoded(value, damage)


class _JsonScan:
    def __init__(self, text: str, decoder: JSONDecoder) -> None:
        self.text = text
        self.decoder = decoder
        self.pos = 0

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.pos)
        if found:
            self.pos = found.end()

    def at(self, sign: str) -> bool:
        self._skip()
        if self.text[self.pos : self.pos + 1] != sign:
            return False
        self.pos += 1
        return True

    def expect(self, sign: str) -> None:
        if not self.at(sign):
            raise ValueError(f"lacks {sign}")

    def end(self) -> None:
        self._skip()
        if self.pos < len(self.text):
            raise ValueError("goes on behind its end")

    def value(self) -> Any:
        self._skip()
        value, self.pos = self.decoder.raw_decode(self.text, self.pos)
        return value

    def items(self, into: list[Any]) -> None:
        self.expect("[")
        if self.at("]"):
            return
        while True:
            into.append(self.value())
            if not self.at(","):
                self.expect("]")
                return
