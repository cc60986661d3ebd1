"""A rank's progress file, decoded: operations at the Python boundary, sections, steps.

The file itself is binary and memory-mapped (see :mod:`hanglab.recorder.case.progress`);
these records are what its reader returns.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec


class SplitLists(NamedTuple):
    """Elements that an uneven all_to_all sends to, and takes from, each rank of its group."""

    sends: tuple[int, ...]
    receives: tuple[int, ...]

    def __str__(self) -> str:
        return f"in:{list(self.sends)} out:{list(self.receives)}"


class OperationCall(msgspec.Struct):
    """One call that crossed from Python into a process group.

    ``entered_ns`` and ``returned_ns`` bracket the call into the process group,
    on the wall clock, so a Flight Recorder entry created between them is this
    operation.  ``returned_ns`` is None while the call has not come back.
    """

    index: int
    #: Method of the process group, such as ``allreduce`` or ``send``.
    method: str
    #: The group's name in Flight Recorder dumps, "" if it has none.
    group: str
    entered_ns: int
    returned_ns: int | None = None
    #: Work.wait of this operation: entered and returned, None where it has not.
    wait_entered_ns: int | None = None
    wait_returned_ns: int | None = None
    #: True once the operation is known to have finished.
    completed: bool = False
    #: True where the call or its wait raised.
    failed: bool = False
    #: True where its Work was gone before anybody waited for it.
    dropped: bool = False
    #: Sequence number that the backend gave the group before this call, if it tells.
    group_seq: int | None = None
    #: Root of broadcast, reduce, gather, scatter, as a rank within the group.
    root: int | None = None
    #: Peer of a send or receive, as a rank within the group; -1 for any source.
    peer: int | None = None
    tag: int | None = None
    reduce_op: str = ""
    #: Shape of the first tensor, if it has one, and its dtype as Flight Recorder names it.
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    numel: int | None = None
    #: Of all_to_all_single where it is uneven; one list may be empty.
    splits: SplitLists | None = None
    #: Of ``new_group``: the ranks that it was called with, as text, or "all".
    members: str = ""
    thread_id: int = 0
    #: Innermost frame of user code that made the call.
    file: str = ""
    line: int = 0
    function: str = ""


class SectionEvent(msgspec.Struct):
    """A section that ended: its time on the wall and on the processor."""

    section: str
    started_ns: int
    wall_ns: int
    cpu_ns: int
    step: int


class OpenSection(msgspec.Struct):
    section: str
    started_ns: int


class SectionTotal(msgspec.Struct):
    section: str
    #: What the recorder itself put there: "input" for a wait for a data loader, "update" for
    #: an optimizer's step; "" for what the job declared.
    kind: Literal["", "input", "update"]
    count: int
    wall_ns: int
    cpu_ns: int


class Fetches(msgspec.Struct):
    """Work of one loader worker: the time that it took to make its batches."""

    #: -1 is the rank itself, whose loader has no workers.
    worker: int
    count: int
    wall_ns: int
    cpu_ns: int
    first_ns: int
    last_ns: int
    #: Of the wall time, for how long it was runnable and had no processor; None if not told.
    waited_ns: int | None = None


class Pause(msgspec.Struct):
    """One run of the garbage collector, during which no other Python code of the rank runs."""

    started_ns: int
    wall_ns: int
    generation: int
    collected: int


class Collections(msgspec.Struct):
    """All runs of the garbage collector over one generation, short ones included."""

    generation: int
    count: int
    wall_ns: int
    longest_ns: int


class Usage(msgspec.Struct):
    """Use that the rank had made of its processors by a moment.  All but ``at_ns`` only grow."""

    at_ns: int
    #: Processor time of the process, all threads.
    cpu_ns: int
    #: Time for which the main thread was runnable and had no processor; None if not told.
    waited_ns: int | None
    #: Times at which the process had to leave a processor.
    involuntary: int


class Batch(msgspec.Struct):
    """One batch that a data loader handed to the rank: elements of all its tensors together."""

    at_ns: int
    elements: int


class Loader(msgspec.Struct):
    """A data loader's iterator that has worker processes, as it was last looked at."""

    number: int
    started_ns: int
    workers: int
    #: Batches that it has asked its workers for and not handed out yet.
    outstanding: int
    #: Those of them that lie ready, and those that no worker has begun to make.
    ready: int | None
    indices: int | None
    delivered: int
    #: When it last handed out a batch, None before the first.
    delivered_ns: int | None
    looked_ns: int | None
    #: True once it has begun to end its workers.
    ended: bool = False
    #: Process ids of its workers, by number; the first 16.
    pids: list[int] = []


class GroupCounter(msgspec.Struct):
    """Copied from a dump without entries; survives the process."""

    pg_id: int
    last_enqueued: int
    last_completed: int


class Progress(msgspec.Struct):
    """All that a progress file says.  Written by the rank, readable after its death."""

    pid: int
    rank: int
    #: Wall minus monotonic clock of the rank, nanoseconds.
    wall_minus_mono_ns: int
    #: Monotonic time at which the rank's own recorder thread last ran.
    heartbeat_mono_ns: int
    step: int
    step_started_ns: int | None
    operations_total: int
    #: The latest operations that still stand in the ring, oldest first.
    operations: list[OperationCall] = []
    open_sections: list[OpenSection] = []
    section_totals: list[SectionTotal] = []
    #: The latest ended sections, oldest first.
    section_events: list[SectionEvent] = []
    fetches: list[Fetches] = []
    counters: list[GroupCounter] = []
    #: Wall time at which the counters were copied.
    counters_at_ns: int | None = None
    #: Wall times at which the latest steps began, oldest first: (step, ns).
    steps: list[tuple[int, int]] = []
    #: Processor time of the rank's process, all threads, when its first operation had been
    #: seen and when it was last looked at, and the wall times of both looks.
    cpu_first_ns: int | None = None
    cpu_first_at_ns: int | None = None
    cpu_last_ns: int | None = None
    cpu_last_at_ns: int | None = None
    #: The latest long runs of the garbage collector, oldest first, and the sums of all runs.
    pauses: list[Pause] = []
    collections: list[Collections] = []
    #: When the run of the garbage collector that goes on began.
    collecting_since_ns: int | None = None
    #: Five times a second, oldest first.
    usage: list[Usage] = []
    #: The latest batches of the rank's loaders, oldest first.
    batches: list[Batch] = []
    loaders: list[Loader] = []
    #: Where the rank stands in its life: "", "running", "exiting" (after the script's end).
    phase: str = ""
    #: True where text or ring space ran out and something was left out.
    truncated: bool = False
