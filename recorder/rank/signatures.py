"""Signatures of operations, written once: records name them by a number."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from struct import Struct
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import NONE, WAIT_COMPLETES, Slot
from hanglab.recorder.rank.arguments import CallArguments
from hanglab.recorder.rank.call_site import CallSite
from hanglab.recorder.rank.progress_file import ProgressFile

_RING = layout.SIGNATURES.capacity
_RECORD_BYTES = layout.SIGNATURES.record
_FLAGS = layout.SIGNATURE_FIELDS.index("signature_flags")
#: So many of the latest signatures can be looked up.  One that is used on after that is
#: written anew: by the time its old row is overwritten, so many operations have come since
#: its last use that none in the ring of operations names it any more.
_LIVE = _RING - layout.OPERATIONS.capacity


class _Live:
    """A signature that can be looked up, and where."""

    def __init__(self, number: int, key: Hashable) -> None:
        self.number = number
        self.key = key
        self.shortcuts: list[tuple[dict[Any, Any], Hashable]] = []


class Signatures:
    """The table SIGNATURES."""

    def __init__(self, progress: ProgressFile) -> None:
        self._mapping = progress.mapping
        self._slots = progress.slots
        self._text = progress.text
        self._first = progress.at[layout.SIGNATURES]
        self._record = Struct(f"<{len(layout.SIGNATURE_FIELDS)}q")
        self._numbers = itertools.count(1)
        self._by_key: dict[Hashable, int] = {}
        self._live: list[_Live | None] = [None] * _LIVE

    def number(
        self, method: str, group: int, site: CallSite, found: CallArguments, waits: bool = False
    ) -> int:
        """Number of the signature; ``group`` is a text's.

        ``waits``: the call comes back when the operation is done.
        """
        key = method, group, site, found, waits
        try:
            number = self._by_key.get(key)
        except TypeError:  # odd arguments
            return self._write(None, method, group, site, found, waits)
        return number or self._write(key, method, group, site, found, waits)

    def _write(
        self,
        key: Hashable,
        method: str,
        group: int,
        site: CallSite,
        found: CallArguments,
        waits: bool,
    ) -> int:
        text = self._text
        shape, numel = _shape_of(found.size) if found.size is not None else ("", NONE)
        dtype = "" if found.dtype is None else str(found.dtype)
        number = next(self._numbers)
        self._forget(number - _LIVE)
        place = self._first + (number - 1) % _RING * _RECORD_BYTES
        self._record.pack_into(
            self._mapping, place, number, text(method), group, text(shape),
            text(_DTYPES.get(dtype, dtype)), text(found.splits),
            site.file, site.function, site.line, numel, found.tag, found.root, found.peer,
            WAIT_COMPLETES if waits or found.on_cpu else 0, number,
        )  # fmt: skip
        self._slots[Slot.SIGNATURES_TOTAL] = number
        if key is not None:
            self._live[number % _LIVE] = _Live(number, key)
            self._by_key[key] = number
        return number

    def shorten(self, number: int, table: dict[Any, Any], at: Hashable, entry: object) -> None:
        """Have ``table[at]`` be the entry for as long as the number can be looked up."""
        live = self._live[number % _LIVE]
        if live is not None and live.number == number:
            live.shortcuts.append((table, at))
            table[at] = entry
            if self._live[number % _LIVE] is not live:  # forgotten meanwhile, by another thread
                table.pop(at, None)

    def _forget(self, number: int) -> None:
        live = self._live[number % _LIVE]
        if live is not None:
            self._live[number % _LIVE] = None
            # Another thread may have written the same signature at the same time.
            if self._by_key.get(live.key) == live.number:
                self._by_key.pop(live.key, None)
            for table, at in live.shortcuts:
                table.pop(at, None)

    def wait_completes(self, number: int) -> bool:
        """True if operations with this signature are done once their wait has returned."""
        row = (self._first + (number - 1) % _RING * _RECORD_BYTES) >> 3
        return self._slots[row] == number and bool(self._slots[row + _FLAGS] & WAIT_COMPLETES)


def _shape_of(size: Any) -> tuple[str, int]:
    lengths = [int(length) for length in size]
    numel = 1
    for length in lengths:
        numel *= length
    return str(lengths), numel


#: Flight Recorder's names of dtypes, which are those of C++.
_DTYPES = {
    "torch.float32": "Float",
    "torch.float64": "Double",
    "torch.float16": "Half",
    "torch.bfloat16": "BFloat16",
    "torch.uint8": "Byte",
    "torch.int8": "Char",
    "torch.int16": "Short",
    "torch.int32": "Int",
    "torch.int64": "Long",
    "torch.bool": "Bool",
    "torch.complex64": "ComplexFloat",
    "torch.complex128": "ComplexDouble",
    "torch.float8_e4m3fn": "Float8_e4m3fn",
    "torch.float8_e5m2": "Float8_e5m2",
}
