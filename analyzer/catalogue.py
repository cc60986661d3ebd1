"""The catalogue of causes: one row each, with all that the decision knows of it.

A new cause is one row here and one detector, a file of its own below ``causes``.  Another
distribution's heuristic brings its row with it (:func:`register`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum, Flag, IntEnum, auto
from functools import cache
from importlib.metadata import entry_points
from typing import get_type_hints

#: Entry points by which other distributions bring heuristics: ``name = "package.module:function"``.
HEURISTICS = "hanglab.heuristics"


class Category(str, Enum):
    """The Flight Recorder tutorial's five kinds of hang, and the two that the field adds."""

    SYNCHRONIZATION = "synchronization"
    DATA_STARVATION = "data_starvation"
    RESOURCE = "resource"
    NETWORK = "network"
    SOFTWARE = "software"
    STRAGGLER = "straggler"
    HARDWARE = "hardware"


class Status(str, Enum):
    HUNG = "hung"
    SLOW = "slow"
    FAILED = "failed"
    CORRUPT = "corrupt"  # it ends or goes on, with results that are undefined
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


class Stage(IntEnum):
    """Stages of the decision: the cause of the first at which one is proved wins."""

    EXIT = 1
    PROCESS = 2
    DIVERGENCE = 3
    CYCLE = 4
    OUTSIDE = 5
    STALLED = 6
    CORRUPT = 7
    SLOW = 8


class Observation(Flag):
    """Observations of a job as a whole, which allow some causes and rule others out."""

    NONE = 0
    #: The recorder captured it because nothing moved any more, and it did not end well.
    STANDSTILL = auto()
    #: A rank ended badly by itself.
    FAILURE = auto()
    #: Every rank came to its end, and well.
    GOOD_END = auto()
    #: Members of a group do not call the same under one number.
    DIVERGENCE = auto()


#: Observations that no job of a status shows.
_FORBIDDEN = {
    Status.SLOW: Observation.STANDSTILL | Observation.FAILURE,
    Status.HUNG: Observation.GOOD_END,
    Status.FAILED: Observation.GOOD_END,
}


@dataclass(frozen=True)
class CauseRow:
    """One row: a cause's name, and what the decision goes by."""

    name: str
    category: Category
    #: Where it is decided, unless its status or how a rank ended says otherwise.
    stage: Stage
    #: What to do next.
    advice: str
    #: The same where neither a line nor a section is named, where it differs.
    advice_without_place: str = ""
    #: That of a job in which it struck, where a scenario does not say otherwise.
    status: Status = Status.HUNG
    #: The same on a backend that compares sizes and dtypes, and raises, where it differs.
    status_where_compared: Status | None = None
    #: Observations of which one must have been made; NONE where it needs no one in particular.
    requires: Observation = Observation.NONE
    #: Observations that rule it out.
    forbids: Observation = Observation.NONE


class Cause(str, Enum):
    """Root causes.  Users' suites hang on these strings: add, never rename."""

    category: Category
    stage: Stage
    advice: str
    advice_without_place: str
    status: Status
    status_where_compared: Status
    requires: Observation
    forbids: Observation

    # A text is for type checkers: ``Cause("crash")`` looks a row up and makes none.
    def __new__(cls, row: CauseRow | str) -> Cause:
        if not isinstance(row, CauseRow):
            raise TypeError(f"a row of the catalogue is a CauseRow, not {row!r}")
        cause = str.__new__(cls, row.name)
        cause._value_ = row.name
        for column in fields(row)[1:]:
            setattr(cause, column.name, getattr(row, column.name))
        cause.status_where_compared = row.status_where_compared or row.status
        return cause

    @classmethod
    def _missing_(cls, value: object) -> Cause | None:
        if value not in _REGISTERED:
            _load_heuristics()
        return _REGISTERED.get(value, (None,))[0]

    def fits(self, observed: Observation, status: Status | None = None) -> bool:
        """True if it may lie behind what was observed, with its usual status or another."""
        forbidden = self.forbids | _FORBIDDEN.get(status or self.status, Observation.NONE)
        met = not self.requires or bool(self.requires & observed)
        return met and not forbidden & observed

    COLLECTIVE_MISMATCH = CauseRow(
        "collective_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Compare the culprit's line with its peers': all ranks must issue the same operations "
        "in the same order; look for a branch on rank, data or time.",
    )
    SKIPPED_COLLECTIVE = CauseRow(
        "skipped_collective",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Find the branch that lets the culprit leave the operation out, and make every rank "
        "take part, with a neutral value where it has nothing to give.",
    )
    UNEVEN_INPUTS = CauseRow(
        "uneven_inputs",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Give every rank the same number of batches (drop_last, padding, a "
        "DistributedSampler), or wrap the loop in DistributedDataParallel.join().",
    )
    MISSING_RANK = CauseRow(
        "missing_rank",
        Category.SYNCHRONIZATION,
        Stage.OUTSIDE,
        "Look at the line that the culprit is at: what it does or waits for there keeps it away.",
        advice_without_place="Take a stack of the culprit (py-spy dump --pid PID): nothing here "
        "tells what it does.",
    )
    SIZE_MISMATCH = CauseRow(
        "size_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Print the tensor's shape on the culprit and on a peer before the operation; pad, or "
        "exchange the sizes first.",
        status_where_compared=Status.FAILED,
    )
    DTYPE_MISMATCH = CauseRow(
        "dtype_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Cast to one dtype on all ranks before the operation.",
        status_where_compared=Status.FAILED,
    )
    REDUCTION_MISMATCH = CauseRow(
        "reduction_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Pass the same reduce operation on every rank; where ranks take turns, choose it from "
        "data that all share.",
        # Whatever the operation, as many bytes go the same ways.
        status=Status.CORRUPT,
    )
    ROOT_MISMATCH = CauseRow(
        "root_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Pass the same root on every rank; compute it from data that all share.",
    )
    SPLIT_MISMATCH = CauseRow(
        "split_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Exchange the split sizes first, so that what one rank sends is what the other expects.",
    )
    GROUP_ORDER = CauseRow(
        "group_order",
        Category.SYNCHRONIZATION,
        Stage.CYCLE,
        "Let all ranks enter the groups in one fixed order.",
    )
    GROUP_CREATION = CauseRow(
        "group_creation",
        Category.SYNCHRONIZATION,
        Stage.OUTSIDE,
        "Call new_group on every rank of the job, in the same order and with the same ranks, "
        "members or not.",
    )
    P2P_DEADLOCK = CauseRow(
        "p2p_deadlock",
        Category.SYNCHRONIZATION,
        Stage.CYCLE,
        "Break the cycle: let one side send while the other receives, or use batch_isend_irecv.",
    )
    P2P_UNMATCHED = CauseRow(
        "p2p_unmatched",
        Category.SYNCHRONIZATION,
        Stage.CYCLE,
        "Pair every send with a receive from the same peer, by one tag, in the same order.",
    )

    INPUT_STARVED = CauseRow(
        "input_starved",
        Category.DATA_STARVATION,
        Stage.SLOW,
        "Speed the input up: more loader workers, prefetching, faster storage, cheaper "
        "preprocessing.",
        status=Status.SLOW,
    )
    LOADER_STUCK = CauseRow(
        "loader_stuck",
        Category.DATA_STARVATION,
        Stage.OUTSIDE,
        "Look at the loader worker's stack in the evidence; set timeout= on the DataLoader so "
        "that it fails instead of waiting.",
    )
    LOADER_WORKER_DIED = CauseRow(
        "loader_worker_died",
        Category.DATA_STARVATION,
        Stage.EXIT,
        "See why the worker died: memory, shared memory, or a crash in the dataset's code; "
        "run with num_workers=0 to get its traceback.",
        status=Status.FAILED,
    )
    SLOW_INPUT = CauseRow(
        "slow_input",
        Category.DATA_STARVATION,
        Stage.SLOW,
        "Compare the culprit's storage, sampler and preprocessing with its peers'.",
        status=Status.SLOW,
    )

    CPU_THROTTLED = CauseRow(
        "cpu_throttled",
        Category.RESOURCE,
        Stage.SLOW,
        "Raise the CPU limit, or lower the number of threads to fit it.",
        status=Status.SLOW,
    )
    MEMORY_PRESSURE = CauseRow(
        "memory_pressure",
        Category.RESOURCE,
        Stage.SLOW,
        "Give the job more memory, or lower its batch and cache sizes.",
        status=Status.SLOW,
    )
    OOM_KILLED = CauseRow(
        "oom_killed",
        Category.RESOURCE,
        Stage.EXIT,
        "Raise the memory limit, or lower batch size, workers and prefetching.",
        status=Status.FAILED,
    )
    HOST_LOST = CauseRow(
        "host_lost",
        Category.RESOURCE,
        Stage.EXIT,
        "Start the job again from its last checkpoint; ask the cluster why it took the host away.",
        status=Status.FAILED,
    )
    GPU_OOM = CauseRow(
        "gpu_oom",
        Category.RESOURCE,
        Stage.EXIT,
        "Lower the batch size or activation memory on the culprit.",
        status=Status.FAILED,
    )
    SHM_EXHAUSTED = CauseRow(
        "shm_exhausted",
        Category.RESOURCE,
        Stage.EXIT,
        "Enlarge /dev/shm (docker --shm-size), or use fewer loader workers.",
        status=Status.FAILED,
    )
    DISK_FULL = CauseRow(
        "disk_full",
        Category.RESOURCE,
        Stage.EXIT,
        "Free space on the disk that the traceback names.",
        status=Status.FAILED,
    )
    FD_EXHAUSTED = CauseRow(
        "fd_exhausted",
        Category.RESOURCE,
        Stage.EXIT,
        "Raise ulimit -n, and look for files or sockets that are never closed.",
        status=Status.FAILED,
    )
    PIDS_EXHAUSTED = CauseRow(
        "pids_exhausted",
        Category.RESOURCE,
        Stage.EXIT,
        "Raise the limit of processes and threads, or start fewer.",
        status=Status.FAILED,
    )
    PROCESS_FROZEN = CauseRow(
        "process_frozen",
        Category.RESOURCE,
        Stage.PROCESS,
        "Find who stopped the process (debugger, job control, freezer) and continue it with "
        "SIGCONT.",
    )
    IO_BLOCKED = CauseRow(
        "io_blocked",
        Category.RESOURCE,
        Stage.PROCESS,
        "Check the file system that the process waits for.",
        requires=Observation.STANDSTILL,
    )

    PARTITION = CauseRow(
        "partition",
        Category.NETWORK,
        Stage.STALLED,
        "Check routes and firewalls between the hosts named in the evidence.",
        requires=Observation.STANDSTILL,
    )
    SLOW_LINK = CauseRow(
        "slow_link",
        Category.NETWORK,
        Stage.SLOW,
        "Check the link between the hosts named in the evidence.",
        status=Status.SLOW,
    )
    RENDEZVOUS = CauseRow(
        "rendezvous",
        Category.NETWORK,
        Stage.EXIT,
        "Check MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and whether every rank was started.",
    )
    STORE_LOST = CauseRow(
        "store_lost",
        Category.NETWORK,
        Stage.EXIT,
        "Keep the process that hosts the store alive until all ranks are done.",
        status=Status.FAILED,
    )

    EXCEPTION = CauseRow(
        "exception",
        Category.SOFTWARE,
        Stage.EXIT,
        "Fix the error in the culprit's traceback; the other ranks only wait for it.",
        status=Status.FAILED,
    )
    CRASH = CauseRow(
        "crash",
        Category.SOFTWARE,
        Stage.EXIT,
        "See the culprit's exit code or signal and the end of its stderr; look for a core dump.",
        status=Status.FAILED,
    )
    PYTHON_DEADLOCK = CauseRow(
        "python_deadlock",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "See who holds the lock that the culprit waits for, in the stacks of its other threads.",
    )
    GIL_HELD = CauseRow(
        "gil_held",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "The C code on the culprit's stack must release the GIL while it waits.",
    )
    BUSY_LOOP = CauseRow(
        "busy_loop",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "See why the condition that the culprit polls never comes true.",
    )
    RANK0_WORK = CauseRow(
        "rank0_work",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "Let the other ranks wait with a longer timeout, or share the work out.",
        status=Status.SLOW,
    )
    FORK_DEADLOCK = CauseRow(
        "fork_deadlock",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "Start the child with spawn or forkserver, or before threads and locks.",
    )
    TEARDOWN = CauseRow(
        "teardown",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "See what the culprit waits for at its exit: a thread to join, a process group to destroy.",
    )
    HOST_SYNC = CauseRow(
        "host_sync",
        Category.SOFTWARE,
        Stage.DIVERGENCE,
        "Do not wait for the device between launches that depend on each other.",
        requires=Observation.STANDSTILL,
        forbids=Observation.DIVERGENCE,
    )

    SLOW_COMPUTE = CauseRow(
        "slow_compute",
        Category.STRAGGLER,
        Stage.SLOW,
        "Compare the culprit's work with its peers' at the line, or in the section, that is named.",
        advice_without_place="Compare the culprit's work with its peers'; with the parts of a step "
        "as sections (recorder.section) the next run tells which of them it is.",
        status=Status.SLOW,
    )
    SLOW_HOST = CauseRow(
        "slow_host",
        Category.STRAGGLER,
        Stage.SLOW,
        "Compare the culprit's host with the others: clocks, neighbours, cooling.",
        status=Status.SLOW,
    )
    GC_PAUSE = CauseRow(
        "gc_pause",
        Category.STRAGGLER,
        Stage.SLOW,
        "Collect garbage on all ranks at the same step, or freeze long-lived objects.",
        status=Status.SLOW,
    )
    IMBALANCE = CauseRow(
        "imbalance",
        Category.STRAGGLER,
        Stage.SLOW,
        "Balance the work: sort or pack by sequence length.",
        status=Status.SLOW,
    )

    GPU_FAULT = CauseRow(
        "gpu_fault",
        Category.HARDWARE,
        Stage.STALLED,
        "Drain the host and check the GPU's Xid messages.",
    )
    GPU_THROTTLED = CauseRow(
        "gpu_throttled",
        Category.HARDWARE,
        Stage.SLOW,
        "Check the GPU's power, temperature and clocks.",
        status=Status.SLOW,
    )
    FABRIC_STALLED = CauseRow(
        "fabric_stalled",
        Category.HARDWARE,
        Stage.STALLED,
        "Check the fabric and the communication library's version.",
    )


#: Causes of other distributions by name, each with its row.
_REGISTERED: dict[object, tuple[Cause, CauseRow]] = {}
#: Words that verdicts have already.
_TAKEN = frozenset(one.value for kind in (Cause, Category, Status) for one in kind)


def register(row: CauseRow) -> Cause:
    """Adds a row of another distribution to the catalogue; gives the cause that it describes.

    Call it where the module of the heuristic is imported: ``Cause(name)`` imports those that are
    installed.  Raises ValueError for a row that cannot stand beside the others: its name is taken
    or no identifier in lower case, or a column is not of its type.
    """
    known = _REGISTERED.get(row.name)
    if known is not None and known[1] == row:
        return known[0]
    for column, type_ in get_type_hints(CauseRow).items():
        if not isinstance(getattr(row, column), type_):
            raise ValueError(f"{column} of a cause cannot be {getattr(row, column)!r}")
    if not row.name.isidentifier() or row.name != row.name.lower() or not row.advice:
        raise ValueError(f"a cause needs advice and a name in lower case, not {row.name!r}")
    if known is not None or row.name in _TAKEN:
        raise ValueError(f"the catalogue has another {row.name}")
    cause: Cause = Cause.__new_member__(Cause, row)  # type: ignore[attr-defined]
    cause._name_ = row.name.upper()
    _REGISTERED[row.name] = cause, row
    return cause


@cache
def _load_heuristics() -> None:
    """Import all that other distributions bring, so that their rows are there."""
    for point in entry_points(group=HEURISTICS):
        with suppress(Exception):  # the registry says why it cannot be used
            point.load()
