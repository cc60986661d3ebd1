"""Reading ``progress.bin``: whole, or its counters only.

The file may come from a rank that died in the middle of a write, or from a
stranger: whatever it says is checked against the bytes that are there.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import NONE, Slot, Table
from hanglab.recorder.case.progress_records import (
    Batch,
    Collections,
    Fetches,
    GroupCounter,
    Loader,
    OpenSection,
    OperationCall,
    Pause,
    Progress,
    SectionEvent,
    SectionTotal,
    SplitLists,
    Usage,
)

_HEADER = struct.Struct("<512q")
_COUNTERS = struct.Struct(f"<{layout.COUNTERS_BYTES // 8}q")
_TABLE = struct.Struct("<3q")
_SLOT = struct.Struct("<q")
_ZEROS = bytes(4096)
#: The number of an operation and its times.
_TIMES = struct.Struct("<5q")
_SIGNATURE = layout.OPERATION_FIELDS.index("signature")
_NO_SIGNATURE = tuple(
    NONE if name in ("numel", "tag", "root", "peer") else 0 for name in layout.SIGNATURE_FIELDS
)
_KINDS: dict[int, Literal["", "input", "update"]] = {1: "input", 2: "update"}


class NotProgress(ValueError):
    """The bytes are no progress file of a version that this reader knows."""


class Counters(NamedTuple):
    """The header's counters: what a watcher compares to see whether the rank moves.

    ``heartbeat_mono_ns`` says when the rank's recorder thread last ran and is no
    sign of the job's own movement.
    """

    pid: int
    rank: int
    attempt: int
    phase: str
    heartbeat_mono_ns: int
    step: int
    steps_total: int
    operations_total: int
    #: Wall time of the latest event, 0 before the first.
    operation_event_ns: int
    section_event_ns: int
    #: Sum over all groups of operations enqueued and completed, as last copied.
    group_events: int
    #: Changes seen of the user functions on the main thread's stack.
    standing_changes: int
    #: Changes seen of the instruction that the main thread's innermost frame is at.
    instruction_changes: int
    #: Operations enqueued and not completed, as last copied.
    open_operations: int
    dumps: int
    #: Whether the main thread asks the same again and again, and gets the same answer.
    polling: bool = False
    #: Threads of Python besides the main one, while that is in an operation; None if it is not,
    #: or waits for one of them, or they are not known.
    idle_threads: tuple[int, ...] | None = None


def read_counters(data: bytes | memoryview | mmap.mmap) -> Counters:
    """The counters of a progress file, from its first 256 bytes or more.

    When the operation that was entered last was returned from or waited for is told by its
    record, so by the whole file alone.  Raises NotProgress.
    """
    if len(data) < _COUNTERS.size:
        raise NotProgress(f"{len(data)} bytes are too few for a progress file")
    slots = _COUNTERS.unpack_from(data)
    _check(slots)
    return Counters(
        pid=slots[Slot.PID],
        rank=slots[Slot.RANK],
        attempt=slots[Slot.ATTEMPT],
        phase=layout.PHASES.get(slots[Slot.PHASE], ""),
        heartbeat_mono_ns=slots[Slot.HEARTBEAT_MONO],
        step=slots[Slot.STEP],
        steps_total=slots[Slot.STEPS_TOTAL],
        operations_total=slots[Slot.OPERATIONS_TOTAL],
        operation_event_ns=max(slots[Slot.OPERATION_EVENT], _latest_event(data, slots)),
        section_event_ns=slots[Slot.SECTION_EVENT],
        group_events=slots[Slot.COUNTERS_SUM],
        standing_changes=slots[Slot.STANDING_CHANGES],
        instruction_changes=slots[Slot.INSTRUCTION_CHANGES],
        open_operations=slots[Slot.COUNTERS_OPEN],
        dumps=slots[Slot.DUMPS],
        polling=len(data) >= layout.HEADER_BYTES and _slot(data, Slot.POLLING_SINCE) > 0,
        idle_threads=_idle_threads(data),
    )


def _idle_threads(data: bytes | memoryview | mmap.mmap) -> tuple[int, ...] | None:
    if len(data) < layout.HEADER_BYTES or not _slot(data, Slot.IN_OPERATION):
        return None
    count = _slot(data, Slot.THREADS)
    if not 0 <= count <= Slot.IN_OPERATION - Slot.FIRST_THREAD:
        return None
    return tuple(_slot(data, Slot.FIRST_THREAD + place) for place in range(count))


def _slot(data: bytes | memoryview | mmap.mmap, place: int) -> int:
    value: int = _SLOT.unpack_from(data, 8 * place)[0]
    return value


def _latest_event(data: bytes | memoryview | mmap.mmap, slots: tuple[int, ...]) -> int:
    """Time of the last event of the operation that was entered last; 0 if not told."""
    total = slots[Slot.OPERATIONS_TOTAL]
    at = Slot.TABLES + 3 * layout.OPERATIONS.place
    if slots[Slot.VERSION] == 1 or total <= 0 or len(data) < layout.HEADER_BYTES:
        return 0
    offset, capacity, record = _TABLE.unpack_from(data, 8 * at)
    if capacity <= 0 or record < layout.OPERATIONS.record or offset < layout.HEADER_BYTES:
        return 0
    place = offset + (total - 1) % capacity * record
    if place + record > len(data):
        return 0
    number, *times = _TIMES.unpack_from(data, place)
    return max(times) if number >= total else 0


def read_progress(data: bytes) -> Progress:
    """Decode a whole progress file.  Raises NotProgress; damage inside only loses records."""
    if len(data) < layout.HEADER_BYTES:
        raise NotProgress(f"{len(data)} bytes are too few for a progress file")
    slots = _HEADER.unpack_from(data)
    _check(slots)
    tables = _TableReader(data, slots)
    text = tables.text
    operations = _operations_1(tables) if slots[Slot.VERSION] == 1 else _operations(tables)
    return Progress(
        pid=slots[Slot.PID],
        rank=slots[Slot.RANK],
        wall_minus_mono_ns=slots[Slot.WALL_MINUS_MONO],
        heartbeat_mono_ns=slots[Slot.HEARTBEAT_MONO],
        step=slots[Slot.STEP],
        step_started_ns=slots[Slot.STEP_STARTED] or None,
        operations_total=max(
            slots[Slot.OPERATIONS_TOTAL], operations[-1].index + 1 if operations else 0
        ),
        operations=operations,
        open_sections=sorted(
            (
                OpenSection(text(name), started)
                for name, started, _ in tables.rows(layout.OPEN, layout.OPEN.capacity)
                if started > 0
            ),
            key=lambda section: section.started_ns,
        ),
        section_totals=[
            SectionTotal(text(name), _KINDS.get(kind, ""), count, wall, cpu)
            for name, kind, count, wall, cpu in tables.rows(layout.TOTALS, slots[Slot.TOTALS_USED])
        ],
        section_events=[
            SectionEvent(text(name), started, wall, cpu, step)
            for _, name, started, wall, cpu, step, _ in tables.ring(layout.SECTIONS)
        ],
        fetches=[
            Fetches(
                worker if worker < layout.FETCHES.capacity - 1 else -1,
                *row[:5],
                *map(_known, row[5:6]),
            )
            for worker, row in enumerate(tables.rows(layout.FETCHES, layout.FETCHES.capacity))
            if row[0] > 0
        ],
        counters=[
            GroupCounter(*row) for row in tables.rows(layout.COUNTERS, slots[Slot.COUNTERS_USED])
        ],
        counters_at_ns=slots[Slot.COUNTERS_AT] or None,
        cpu_first_ns=slots[Slot.CPU_FIRST] if slots[Slot.CPU_FIRST_AT] else None,
        cpu_first_at_ns=slots[Slot.CPU_FIRST_AT] or None,
        cpu_last_ns=slots[Slot.CPU_LAST] if slots[Slot.CPU_FIRST_AT] else None,
        cpu_last_at_ns=slots[Slot.CPU_LAST_AT] or None,
        steps=[(step, started) for _, step, started, _ in tables.ring(layout.STEPS)],
        pauses=[Pause(*row[1:-1]) for row in tables.ring(layout.PAUSES)],
        collections=[
            Collections(generation, *row)
            for generation, row in enumerate(
                tables.rows(layout.COLLECTIONS, layout.COLLECTIONS.capacity)
            )
            if row[0] > 0
        ],
        collecting_since_ns=slots[Slot.COLLECTING] or None,
        usage=[
            Usage(at, cpu, _known(waited), switches)
            for _, at, cpu, waited, switches, _ in tables.ring(layout.USAGE)
        ],
        batches=[Batch(*row[1:-1]) for row in tables.ring(layout.BATCHES)],
        loaders=[
            _loader(row) for row in tables.rows(layout.LOADERS, layout.LOADERS.capacity) if row[0]
        ],
        phase=layout.PHASES.get(slots[Slot.PHASE], ""),
        truncated=bool(slots[Slot.FLAGS] & layout.TRUNCATED),
    )


def _check(slots: tuple[int, ...]) -> None:
    if slots[Slot.MAGIC] != layout.MAGIC:
        raise NotProgress("it does not begin like a progress file")
    if slots[Slot.VERSION] not in layout.TABLES_OF:
        raise NotProgress(
            f"it has layout {slots[Slot.VERSION]}, this hanglab reads up to {layout.VERSION}"
        )


class _TableReader:
    """Access to the tables, kept within the bytes that are there."""

    def __init__(self, data: bytes, slots: tuple[int, ...]) -> None:
        self._data = data
        self._slots = slots
        self._texts: dict[int, str] = {0: ""}
        self._text_at, self._text_bytes, _ = self._place(layout.TEXT)

    def _place(self, table: Table) -> tuple[int, int, int]:
        """Offset, number of records that fit into the data, and record size."""
        at = Slot.TABLES + 3 * table.place
        offset, capacity, record = self._slots[at : at + 3]
        if offset < layout.HEADER_BYTES or record < table.record or record > 4096:
            return 0, 0, table.record
        room = max(0, len(self._data) - offset) // record
        return offset, max(0, min(capacity, room)), record

    def _records(self, table: Table, limit: int) -> Iterator[tuple[int, ...]]:
        offset, capacity, record = self._place(table)
        # A later writer may append fields to a record.
        row = struct.Struct(f"<{table.record // 8}q{record - table.record}x")
        count = max(0, min(limit, capacity))
        return row.iter_unpack(self._data[offset : offset + count * record])

    def _written(self, table: Table) -> Iterator[tuple[int, ...]]:
        """Records of a ring, without most of the zeros behind them that a short job leaves."""
        offset, capacity, record = self._place(table)
        end = offset + capacity * record
        while end - offset >= len(_ZEROS) and self._data.endswith(_ZEROS, offset, end):
            end -= len(_ZEROS)
        return self._records(table, -(-(end - offset) // record))

    def rows(self, table: Table, used: int) -> list[tuple[int, ...]]:
        return list(self._records(table, used))

    def ring(self, table: Table) -> list[tuple[int, ...]]:
        """Complete records, oldest first."""
        rows = [r for r in self._written(table) if r[0] == r[-1] and r[0] > 0]
        rows.sort()
        return rows

    def text(self, number: int) -> str:
        known = self._texts.get(number)
        if known is not None:
            return known
        text = ""
        if 0 < number <= self._text_bytes - 2:
            at = self._text_at + number
            length = int.from_bytes(self._data[at : at + 2], "little")
            end = min(at + 2 + length, self._text_at + self._text_bytes)
            text = self._data[at + 2 : end].decode("utf-8", "replace")
        if len(self._texts) < 65536:
            self._texts[number] = text
        return text


def _known(value: int) -> int | None:
    return None if value == NONE else value


def _loader(row: tuple[int, ...]) -> Loader:
    workers = max(0, row[2])
    return Loader(
        number=abs(row[0]),
        ended=row[0] < 0,
        started_ns=row[1],
        workers=workers,
        outstanding=row[3],
        ready=_known(row[4]),
        indices=_known(row[5]),
        delivered=row[6],
        delivered_ns=row[7] or None,
        looked_ns=row[8] or None,
        pids=list(row[9 : 9 + min(workers, layout.LOADER_PIDS)]),
    )


def _operations(tables: _TableReader) -> list[OperationCall]:
    signatures = {row[0]: row for row in tables.ring(layout.SIGNATURES)}
    return [
        _operation(row, signatures.get(row[_SIGNATURE], _NO_SIGNATURE), tables)
        for row in tables.ring(layout.OPERATIONS)
    ]


def _operation(
    row: tuple[int, ...], signature: tuple[int, ...], tables: _TableReader
) -> OperationCall:
    values = dict(zip(layout.SIGNATURE_FIELDS, signature, strict=True))
    # Both have a number; that of the operation counts.
    values |= zip(layout.OPERATION_FIELDS, row, strict=True)
    if values["wait_returned"] and values["signature_flags"] & layout.WAIT_COMPLETES:
        if not values["flags"] & layout.FAILED:
            values["flags"] |= layout.COMPLETED
    return _decoded(values, tables)


def _operations_1(tables: _TableReader) -> list[OperationCall]:
    names = layout.OPERATION_FIELDS_1
    return [
        _decoded(dict(zip(names, row, strict=True)), tables)
        for row in tables.ring(layout.OPERATIONS_1)
    ]


def _split_lists(text: str) -> SplitLists | None:
    """The lists that the recorder writes as ``in:[1, 2] out:[2, 1]``; None of any other text."""
    sends, found, receives = text.partition(" out:")
    if not found or not sends.startswith("in:"):
        return None
    try:
        return SplitLists(_integers(sends[3:]), _integers(receives))
    except ValueError:
        return None


def _shape(text: str) -> tuple[int, ...] | None:
    """The shape that the recorder writes as ``[4, 8]``; None of any other text."""
    try:
        return _integers(text)
    except ValueError:
        return None


def _integers(text: str) -> tuple[int, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(text)
    return tuple(int(number) for number in text[1:-1].split(",") if number.strip())


def _decoded(values: dict[str, int], tables: _TableReader) -> OperationCall:
    text = tables.text
    method, splits = text(values["method"]), text(values["splits"])
    return OperationCall(
        index=values["number"] - 1,
        method=method,
        group=text(values["group"]),
        entered_ns=values["entered"],
        returned_ns=values["returned"] or None,
        wait_entered_ns=values["wait_entered"] or None,
        wait_returned_ns=values["wait_returned"] or None,
        completed=bool(values["flags"] & layout.COMPLETED),
        failed=bool(values["flags"] & layout.FAILED),
        dropped=bool(values["flags"] & layout.DROPPED),
        group_seq=_known(values["group_seq"]),
        root=_known(values["root"]),
        peer=_known(values["peer"]),
        tag=_known(values["tag"]),
        reduce_op=text(values["reduce_op"]),
        shape=_shape(text(values["shape"])),
        dtype=text(values["dtype"]),
        numel=_known(values["numel"]),
        splits=_split_lists(splits),
        members=splits if method == "new_group" else "",
        thread_id=values["thread_id"],
        file=text(values["file"]),
        line=values["line"],
        function=text(values["function"]),
    )
