"""A progress file without names: its numbers as they were, its texts written anew."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import Slot, Table

_WORD = 8
#: Tables without texts; one that is not named here or below is left out.
_NUMBERS = (
    layout.COUNTERS,
    layout.STEPS,
    layout.FETCHES,
    layout.PAUSES,
    layout.COLLECTIONS,
    layout.USAGE,
    layout.BATCHES,
)
_PLAIN = re.compile(r"[A-Za-z0-9_ ,.:\[\]-]*")
#: TextRedaction of the boundary's own: methods, shapes, dtypes and lists of numbers.
_OWN_TEXTS = ("method", "reduce_op", "shape", "dtype", "splits")


class DamagedProgress(ValueError):
    """The file is none of a layout that is known."""


def redact_progress(data: bytes, names: Pseudonyms) -> bytes:
    """The file with other texts, in its own version's layout.  Raises DamagedProgress."""
    if len(data) < layout.HEADER_BYTES:
        raise DamagedProgress("too short")
    header = list(struct.unpack_from("<512q", data))
    if header[Slot.MAGIC] != layout.MAGIC or header[Slot.VERSION] not in layout.TABLES_OF:
        raise DamagedProgress("of another layout")
    return _Rewriting(data, header, names).run()


class _Rewriting:
    def __init__(self, data: bytes, header: list[int], names: Pseudonyms) -> None:
        self._data = data
        self._header = header
        self._names = names
        tables = layout.TABLES_OF[header[Slot.VERSION]]
        *places, size = layout.offsets(tables)
        self._at = dict(zip(tables, places, strict=True))
        self._out = bytearray(size)
        self._texts: dict[str, int] = {"": 0}
        self._used = 8

    def run(self) -> bytes:
        for table in _NUMBERS:
            self._copy(table, lambda row: row)
        if self._header[Slot.VERSION] == 1:
            self._copy(layout.OPERATIONS_1, self._operation(layout.OPERATION_FIELDS_1))
        else:
            self._copy(layout.OPERATIONS, self._operation(layout.OPERATION_FIELDS))
            self._copy(layout.SIGNATURES, self._operation(layout.SIGNATURE_FIELDS))
        self._copy(layout.SECTIONS, self._named(1))
        self._copy(layout.TOTALS, self._named(0))
        self._copy(layout.OPEN, self._named(0))
        header = self._header[: Slot.TABLES] + [0] * (512 - Slot.TABLES)
        for table, place in self._at.items():
            first = Slot.TABLES + 3 * table.place
            header[first : first + 3] = [place, table.capacity, table.record]
        header[Slot.TEXT_USED] = self._used
        header[Slot.FILE_BYTES] = len(self._out)
        struct.pack_into("<512q", self._out, 0, *header)
        return bytes(self._out)

    def _copy(self, table: Table, change: Callable[[list[int]], list[int]]) -> None:
        first = Slot.TABLES + 3 * table.place
        place, capacity, record = self._header[first : first + 3]
        # The writer of another release may have had other sizes, which say what fits.
        if record != table.record or place < layout.HEADER_BYTES:
            return
        row_format = struct.Struct(f"<{record // _WORD}q")
        for index in range(min(capacity, table.capacity)):
            at = place + index * record
            if at + record > len(self._data):
                return
            row = list(row_format.unpack_from(self._data, at))
            if any(row):
                row_format.pack_into(self._out, self._at[table] + index * record, *change(row))

    def _operation(self, fields: tuple[str, ...]) -> Callable[[list[int]], list[int]]:
        """Redaction of records with these fields, some of which hold texts."""
        names = self._names
        place = {name: at for at, name in enumerate(fields)}

        def change(row: list[int]) -> list[int]:
            for field in _OWN_TEXTS:
                if field in place:
                    text = self._read(row[place[field]])
                    row[place[field]] = self._write(text if _PLAIN.fullmatch(text) else "")
            if "file" in place:
                row[place["group"]] = self._write(names.group(self._read(row[place["group"]])))
                file = self._read(row[place["file"]])
                function = self._read(row[place["function"]])
                row[place["file"]] = self._write(names.file(file))
                row[place["function"]] = self._write(names.function(function, file))
            return row

        return change

    def _named(self, place: int) -> Callable[[list[int]], list[int]]:
        def change(row: list[int]) -> list[int]:
            row[place] = self._write(self._names.section(self._read(row[place])))
            return row

        return change

    def _read(self, number: int) -> str:
        first = Slot.TABLES + 3 * layout.TEXT.place
        place, capacity = self._header[first], self._header[first + 1]
        at = place + number
        if number <= 0 or number + 2 > capacity or at + 2 > len(self._data):
            return ""
        size = int.from_bytes(self._data[at : at + 2], "little")
        return self._data[at + 2 : at + 2 + size].decode("utf-8", "replace")

    def _write(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            data = text.encode()[:4096]
            if self._used + 2 + len(data) > layout.TEXT.capacity:
                return 0
            number = self._texts[text] = self._used
            at = self._at[layout.TEXT] + number
            self._out[at : at + 2 + len(data)] = len(data).to_bytes(2, "little") + data
            self._used += 2 + len(data)
        return number
