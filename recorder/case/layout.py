"""Binary layout of ``progress.bin``, version 2.

Little-endian; everything is a signed 64-bit integer at an 8-byte boundary, save
the bytes of the text table.  A 4,096-byte header of 512 slots comes first, then
the tables, whose offset, capacity and record size stand in the header, so that
a reader needs no constant of the writer but the slot numbers.  Rings hold the
latest records: record ``i`` stands at place ``i % capacity``.  A ring record
begins and ends with its number plus one, so that one caught half-written shows.

Version 1 differed in OPERATIONS: each record told all of its operation, where now what
repeats stands in SIGNATURES.

Only constants here: the part that runs inside ranks imports nothing else of
this package.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAGIC: Final = int.from_bytes(b"HANGLAB1", "little")
VERSION: Final = 2
HEADER_BYTES: Final = 4096
#: The header's beginning, with all counters that a watcher needs.
COUNTERS_BYTES: Final = 32 * 8

#: Stands for None where 0 and small negative numbers have a meaning.
NONE: Final = -(1 << 63)


class Slot:
    """Slots of the header.  Times are nanoseconds, on the wall clock unless named mono."""

    MAGIC: Final = 0
    VERSION: Final = 1
    FILE_BYTES: Final = 2
    PID: Final = 3
    RANK: Final = 4
    ATTEMPT: Final = 5
    WORLD_SIZE: Final = 6
    WALL_MINUS_MONO: Final = 7
    HEARTBEAT_MONO: Final = 8
    #: 0 unknown, 1 running, 2 exiting.
    PHASE: Final = 9
    #: Bit 0: text or table space ran out and something was left out.
    FLAGS: Final = 10
    #: Number of the current step, -1 before the first.
    STEP: Final = 11
    STEP_STARTED: Final = 12
    #: Steps begun so far.
    STEPS_TOTAL: Final = 13
    #: Operations entered so far.
    OPERATIONS_TOTAL: Final = 14
    #: When an operation other than the one entered last returned or was waited for; the times
    #: of the one entered last stand in its record.  In version 1 those, too.
    OPERATION_EVENT: Final = 15
    #: When a section last began or ended; 0 before.
    SECTION_EVENT: Final = 16
    #: Rows in use of the table of totals.
    TOTALS_USED: Final = 18
    #: Rows in use of the table of counters.
    COUNTERS_USED: Final = 19
    COUNTERS_AT: Final = 20
    #: Sum over all groups of operations enqueued and completed.
    COUNTERS_SUM: Final = 21
    #: Bytes in use of the text table.
    TEXT_USED: Final = 22
    #: Grows each time the rank answered a request to dump.
    DUMPS: Final = 23
    #: Processor time of the whole process at the first look after its first operation, the
    #: wall time of that look, and the same of the latest look.
    CPU_FIRST: Final = 24
    CPU_FIRST_AT: Final = 25
    CPU_LAST: Final = 26
    CPU_LAST_AT: Final = 27
    #: Grows when the user functions on the main thread's stack were seen to have changed.
    STANDING_CHANGES: Final = 17
    #: When the garbage collection that runs now began, 0 between two.
    COLLECTING: Final = 28
    #: Grows when the main thread was seen at another instruction of the same functions.
    INSTRUCTION_CHANGES: Final = 29
    #: Operations enqueued and not completed, over all groups, when the counters were copied.
    COUNTERS_OPEN: Final = 30
    #: Signatures written so far.
    SIGNATURES_TOTAL: Final = 31
    #: First of three slots (offset, capacity in records or bytes, record size) per table.
    TABLES: Final = 32
    #: Number of the threads of Python besides the main one, -1 if there is no room for them all,
    #: and the first of their ids: for who watches the rank.
    THREADS: Final = 447
    FIRST_THREAD: Final = 448
    #: 1 where the main thread was seen in an operation, and not in what waits for other threads.
    IN_OPERATION: Final = 510
    #: Monotonic time since which the main thread has asked one question again and again and got
    #: one answer, 0 if it does not: for who watches the rank.
    POLLING_SINCE: Final = 511


class Table(NamedTuple):
    """Place of a table's description among the three-slot groups, and its default size."""

    place: int
    capacity: int
    #: Bytes of one record; 1 for the text table, whose capacity is in bytes.
    record: int


#: A text is its length (2 bytes) and that many bytes of UTF-8; its number is its
#: offset in the table.  Number 0 is the empty text.
TEXT: Final = Table(0, 256 * 1024, 1)
#: Ring.  Fields: see OPERATION_FIELDS.
OPERATIONS: Final = Table(1, 2048, 11 * 8)
#: The same in version 1; see OPERATION_FIELDS_1.
OPERATIONS_1: Final = Table(1, 2048, 22 * 8)
#: Ring.  number + 1, name, started, wall, cpu, step, number + 1.
SECTIONS: Final = Table(2, 4096, 7 * 8)
#: Rows.  name, kind (0 plain, 1 input, 2 update), count, wall, cpu.
TOTALS: Final = Table(3, 256, 5 * 8)
#: Rows, in use where started is not 0.  name, started, thread id.
OPEN: Final = Table(4, 64, 3 * 8)
#: Rows.  pg_id, last enqueued, last completed.
COUNTERS: Final = Table(5, 512, 3 * 8)
#: Ring.  number + 1, step, started, number + 1.
STEPS: Final = Table(6, 1024, 4 * 8)
#: Rows, one per loader worker by its number; written by the workers themselves.  The last row
#: is the rank's own, where its loader has no workers.
#: batches fetched, wall time, processor time, start of the first, end of the latest, time for
#: which it was runnable without a processor (NONE where the kernel does not tell).
FETCHES: Final = Table(7, 64, 6 * 8)
#: Ring of garbage collections that took long enough to matter.
#: number + 1, started, wall, generation, objects collected, number + 1.
PAUSES: Final = Table(8, 1024, 6 * 8)
#: Rows, one per generation of the garbage collector: collections, wall, longest.
COLLECTIONS: Final = Table(9, 4, 3 * 8)
#: Ring, one record with each copy of the counters.
#: number + 1, at, processor time of the process, time for which the main thread (and that of an
#: emulated device, for which it waits) was runnable without a processor, involuntary switches of
#: the process, number + 1.
USAGE: Final = Table(10, 2048, 6 * 8)
#: Ring of batches that a loader handed out.  number + 1, at, elements, number + 1.
BATCHES: Final = Table(11, 2048, 4 * 8)
#: Process ids of a loader's workers that have room in its row.
LOADER_PIDS: Final = 16
#: Rows of live iterators of data loaders with workers; see LOADER_FIELDS, then process ids.
LOADERS: Final = Table(12, 16, (9 + LOADER_PIDS) * 8)
#: Ring of what repeats in operations; see SIGNATURE_FIELDS.  A signature is written anew before
#: half of the ring has come round, so that each record of OPERATIONS finds its own.
SIGNATURES: Final = Table(13, 2 * OPERATIONS.capacity, 15 * 8)

ALL_TABLES: Final = (
    TEXT,
    OPERATIONS,
    SECTIONS,
    TOTALS,
    OPEN,
    COUNTERS,
    STEPS,
    FETCHES,
    PAUSES,
    COLLECTIONS,
    USAGE,
    BATCHES,
    LOADERS,
    SIGNATURES,
)

#: Fields of a record of OPERATIONS, in order.  Text fields hold text numbers, times
#: 0 where it has not happened, the rest NONE where it is not known.
OPERATION_FIELDS: Final = (
    "number",  # index + 1
    "entered",
    "returned",
    "wait_entered",
    "wait_returned",
    "group_seq",
    "thread_id",
    "signature",  # number of a record of SIGNATURES
    "reduce_op",
    "flags",
    "number_again",
)
#: Fields of a record of SIGNATURES.
SIGNATURE_FIELDS: Final = (
    "number",  # from 1
    "method",
    "group",
    "shape",
    "dtype",
    "splits",
    "file",
    "function",
    "line",
    "numel",
    "tag",
    "root",
    "peer",
    "signature_flags",
    "number_again",
)
#: Fields of a record of OPERATIONS in version 1.
OPERATION_FIELDS_1: Final = (
    "number",  # index + 1
    "entered",
    "returned",
    "wait_entered",
    "wait_returned",
    "group_seq",
    "numel",
    "tag",
    "thread_id",
    "root",
    "peer",
    "method",
    "group",
    "reduce_op",
    "shape",
    "dtype",
    "splits",
    "file",
    "function",
    "line",
    "flags",
    "number_again",
)
#: Fields of a row of LOADERS, before the process ids of its workers.
LOADER_FIELDS: Final = (
    "number",  # from 1; negative once it has ended its workers
    "started",
    "workers",
    "outstanding",  # batches asked for and not handed out
    "ready",  # those of them that have been made; NONE if unknown
    "indices",  # those that no worker has begun; NONE if unknown
    "delivered",
    "delivered_at",  # 0 before the first
    "looked_at",  # when the three were noted
)
#: Bits of ``flags`` of an operation.
COMPLETED: Final = 1
FAILED: Final = 2
DROPPED: Final = 4
#: Bit of the flags of a signature: its operations are done when their wait has returned.
WAIT_COMPLETES: Final = 1

RUNNING: Final = 1
EXITING: Final = 2
PHASES: Final = {0: "", RUNNING: "running", EXITING: "exiting"}
TRUNCATED: Final = 1


#: The tables of each version that can be read.
TABLES_OF: Final = {
    1: (TEXT, OPERATIONS_1, *ALL_TABLES[2:-1]),
    VERSION: ALL_TABLES,
}


def offsets(tables: tuple[Table, ...] = ALL_TABLES) -> tuple[int, ...]:
    """Byte offset of each table, and the size of the file at the end."""
    places = []
    offset = HEADER_BYTES
    for table in tables:
        places.append(offset)
        offset += (table.capacity * table.record + 7) // 8 * 8
    return (*places, offset)
