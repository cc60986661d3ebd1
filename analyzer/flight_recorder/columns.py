"""One rank's dump as columns.

Text, shapes and stacks repeat thousands of times in a dump, so each distinct
value stands once in a table and a column holds its index.  ``n`` is the number
of entries; every array of :class:`Entries` has shape ``(n,)``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from hanglab.recorder.case.backends import backend_of
from hanglab.recorder.case.operations import OpSpec, op_of

if TYPE_CHECKING:
    from hanglab.recorder.case.progress_records import SplitLists

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

#: A time or a number that the dump does not give.
ABSENT = -1


class State(IntEnum):
    """State that an entry claims.  It may lie: see ``retired`` and the group's status."""

    UNKNOWN = 0
    SCHEDULED = 1
    STARTED = 2
    COMPLETED = 3


@dataclass(frozen=True)
class GroupName:
    """A process group as one rank's dump names it: its name and its description."""

    name: str
    description: str


@dataclass(frozen=True)
class Operation:
    """Operation of an entry: ``nccl:send 0->1`` is backend nccl, op send, src 0, dst 1.

    ``src`` and ``dst`` are ranks within the group, ABSENT where there is none.  ``tag`` is that
    of a send or receive, 0 where none is given or the backend has no tags.
    """

    backend: str
    op: str
    src: int = ABSENT
    dst: int = ABSENT
    tag: int = 0

    @property
    def spec(self) -> OpSpec:
        return op_of(self.op)

    @property
    def peer(self) -> int:
        """Rank within the group at the other end of a send or receive."""
        return self.dst if self.spec.sends else self.src


@dataclass(frozen=True)
class Arguments:
    """Shapes and dtypes of an entry, and what only the Python boundary knows of it."""

    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    #: Root within the group, None where it is not known or there is none.
    root: int | None = None
    reduce_op: str = ""
    splits: SplitLists | None = None


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int


@dataclass
class Entries:
    """The ring buffer of one rank, oldest entry first."""

    record_id: Int64
    pg_id: Int64
    #: Index into ``group_names``.
    group: Int32
    #: collective_seq_id; ABSENT if the dump has none.
    seq: Int64
    p2p_seq: Int64
    op_id: Int64
    #: Index into ``operations``.
    operation: Int32
    #: Index into ``arguments``.
    argument: Int32
    #: Index into ``stacks``; ABSENT without frames.
    stack: Int32
    #: Values of State.
    state: Int8
    retired: Bool
    is_p2p: Bool
    #: Wall clock, nanoseconds.
    created_ns: Int64
    started_ns: Int64
    completed_ns: Int64
    timeout_ms: Int64
    #: NaN where it was not measured.
    duration_ms: Float64
    #: Index into ``threads``.
    thread: Int32
    group_names: list[GroupName] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    arguments: list[Arguments] = field(default_factory=list)
    #: Innermost frame first.
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def counts_p2p(self) -> bool:
        """True if sends and receives have numbers of the same row as collectives."""
        return any(backend_of(operation.backend).counts_p2p for operation in self.operations)

    def operation_at(self, row: int) -> Operation:
        return self.operations[int(self.operation[row])]

    def arguments_at(self, row: int) -> Arguments:
        return self.arguments[int(self.argument[row])]

    def stack_at(self, row: int) -> tuple[Frame, ...]:
        """Innermost frame first; () without frames."""
        stack = int(self.stack[row])
        return self.stacks[stack] if stack >= 0 else ()

    def group_at(self, row: int) -> str:
        """Name of the entry's group."""
        return self.group_names[int(self.group[row])].name

    def in_group(self, name: str | None) -> Bool:
        """True for the entries of the group with this name."""
        numbers = [number for number, one in enumerate(self.group_names) if one.name == name]
        found: Bool = np.isin(self.group, numbers)
        return found


#: Columns that are indices, and the tables into which.
TABLES: Final = {
    "group": "group_names",
    "operation": "operations",
    "argument": "arguments",
    "stack": "stacks",
    "thread": "threads",
}


@dataclass(frozen=True)
class GroupStatus:
    """Sequence numbers of the group's last operations; None where the dump has none (-1)."""

    enqueued: int | None
    started: int | None
    completed: int | None


@dataclass
class RankDump:
    """One rank's Flight Recorder buffer.

    ``members`` gives the global ranks of a group by its name, where the dump
    knows them; ``names`` the name of a ``pg_id`` where that can be told.
    """

    rank: int
    source: str
    version: str = ""
    library_version: str = ""
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Global ranks of a group without a name: they belong to the job, to which group is not told.
    nameless: tuple[int, ...] = ()
    descriptions: dict[str, str] = field(default_factory=dict)
    #: Keyed by pg_id, as in the dump.
    status: dict[int, GroupStatus] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    #: Names of groups that the rank has destroyed and formed again, and what they were called.
    former: dict[str, str] = field(default_factory=dict)
    entries: Entries | None = None
    #: True where only unfinished entries were dumped, or the ring dropped older ones.
    partial: bool = False
    #: There was no dump: only calls that passed the Python boundary are known, but all of those.
    boundary_only: bool = False
    #: Sends and receives that leave no entry would be known from the Python boundary.
    sends_known: bool = False
    #: What had to be left out of this file, in words; "" if nothing.
    damage: str = ""
    #: When the file was last written, by the clock of its file system; ABSENT if not known.
    written_ns: int = ABSENT
    #: ``nccl_comm_state`` or anything else that is kept as it came.
    extra: dict[str, Any] = field(default_factory=dict)
    #: Indices of entries that were posted and that the rank provably does not wait for.
    posted: frozenset[int] = frozenset()
    #: Indices of entries in which a thread of the rank is known to stand, or to wait for them.
    held: frozenset[int] = frozenset()
    #: Steps of the job as the rank began them, oldest first: number and wall time.
    steps_begun: tuple[tuple[int, int], ...] = ()

    def step_at(self, time_ns: int) -> int | None:
        """Step of the job in which the rank was at a wall time; None where that is not known."""
        place = bisect_right(self.steps_begun, time_ns, key=lambda begun: begun[1])
        return self.steps_begun[place - 1][0] if place else None
