"""The catalogue of causes: for each its name, category, stage, advice, and the usual status.

A new cause is one row here and one detector, a file of its own below ``causes``.
"""

from __future__ import annotations

from enum import Enum, IntEnum


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


class Cause(str, Enum):
    """Root causes.  Users' suites hang on these strings: add, never rename."""

    category: Category
    #: Where it is decided, unless its status or how a rank ended says otherwise.
    stage: Stage
    #: What to do next.
    advice: str
    #: That of a job in which it struck, where a scenario does not say otherwise.
    status: Status
    #: The same on a backend that compares sizes and dtypes, and raises.
    status_where_compared: Status

    # The defaults are for type checkers: ``Cause("crash")`` looks a row up and makes none.
    def __new__(
        cls,
        name: str,
        category: Category = Category.SOFTWARE,
        stage: Stage = Stage.OUTSIDE,
        advice: str = "",
        status: Status = Status.HUNG,
        status_where_compared: Status | None = None,
    ) -> Cause:
        cause = str.__new__(cls, name)
        cause._value_ = name
        cause.category = category
        cause.stage = stage
        cause.advice = advice
        cause.status = status
        cause.status_where_compared = status_where_compared or status
        return cause

    COLLECTIVE_MISMATCH = (
        "collective_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Compare the culprit's line with its peers': all ranks must issue the same operations "
        "in the same order; look for a branch on rank, data or time.",
    )
    SKIPPED_COLLECTIVE = (
        "skipped_collective",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Find the branch that lets the culprit leave the operation out, and make every rank "
        "take part, with a neutral value where it has nothing to give.",
    )
    UNEVEN_INPUTS = (
        "uneven_inputs",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Give every rank the same number of batches (drop_last, padding, a "
        "DistributedSampler), or wrap the loop in DistributedDataParallel.join().",
    )
    MISSING_RANK = (
        "missing_rank",
        Category.SYNCHRONIZATION,
        Stage.OUTSIDE,
        "Look at the line that the culprit is at; take a stack of it (py-spy dump) if none "
        "was captured.",
    )
    SIZE_MISMATCH = (
        "size_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Print the tensor's shape on the culprit and on a peer before the operation; pad, or "
        "exchange the sizes first.",
        Status.HUNG,
        Status.FAILED,
    )
    DTYPE_MISMATCH = (
        "dtype_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Cast to one dtype on all ranks before the operation.",
        Status.HUNG,
        Status.FAILED,
    )
    REDUCTION_MISMATCH = (
        "reduction_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Pass the same reduce operation on every rank; where ranks take turns, choose it from "
        "data that all share.",
        # Whatever the operation, as many bytes go the same ways.
        Status.CORRUPT,
    )
    ROOT_MISMATCH = (
        "root_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Pass the same root on every rank; compute it from data that all share.",
    )
    SPLIT_MISMATCH = (
        "split_mismatch",
        Category.SYNCHRONIZATION,
        Stage.DIVERGENCE,
        "Exchange the split sizes first, so that what one rank sends is what the other expects.",
    )
    GROUP_ORDER = (
        "group_order",
        Category.SYNCHRONIZATION,
        Stage.CYCLE,
        "Let all ranks enter the groups in one fixed order.",
    )
    GROUP_CREATION = (
        "group_creation",
        Category.SYNCHRONIZATION,
        Stage.OUTSIDE,
        "Call new_group on every rank of the job, in the same order and with the same ranks, "
        "members or not.",
    )
    P2P_DEADLOCK = (
        "p2p_deadlock",
        Category.SYNCHRONIZATION,
        Stage.CYCLE,
        "Break the cycle: let one side receive first, or use batch_isend_irecv.",
    )
    P2P_UNMATCHED = (
        "p2p_unmatched",
        Category.SYNCHRONIZATION,
        Stage.CYCLE,
        "Pair every send with a receive from the same peer, in the same order.",
    )

    INPUT_STARVED = (
        "input_starved",
        Category.DATA_STARVATION,
        Stage.SLOW,
        "Speed the input up: more loader workers, prefetching, faster storage, cheaper "
        "preprocessing.",
        Status.SLOW,
    )
    LOADER_STUCK = (
        "loader_stuck",
        Category.DATA_STARVATION,
        Stage.OUTSIDE,
        "Look at the loader worker's stack in the evidence; set timeout= on the DataLoader so "
        "that it fails instead of waiting.",
    )
    LOADER_WORKER_DIED = (
        "loader_worker_died",
        Category.DATA_STARVATION,
        Stage.EXIT,
        "See why the worker died: memory, shared memory, or a crash in the dataset's code; "
        "run with num_workers=0 to get its traceback.",
        Status.FAILED,
    )
    SLOW_INPUT = (
        "slow_input",
        Category.DATA_STARVATION,
        Stage.SLOW,
        "Compare the culprit's storage, sampler and preprocessing with its peers'.",
        Status.SLOW,
    )

    CPU_THROTTLED = (
        "cpu_throttled",
        Category.RESOURCE,
        Stage.SLOW,
        "Raise the CPU limit, or lower the number of threads to fit it.",
        Status.SLOW,
    )
    MEMORY_PRESSURE = (
        "memory_pressure",
        Category.RESOURCE,
        Stage.SLOW,
        "Give the job more memory, or lower its batch and cache sizes.",
        Status.SLOW,
    )
    OOM_KILLED = (
        "oom_killed",
        Category.RESOURCE,
        Stage.EXIT,
        "Raise the memory limit, or lower batch size, workers and prefetching.",
        Status.FAILED,
    )
    GPU_OOM = (
        "gpu_oom",
        Category.RESOURCE,
        Stage.EXIT,
        "Lower the batch size or activation memory on the culprit.",
        Status.FAILED,
    )
    SHM_EXHAUSTED = (
        "shm_exhausted",
        Category.RESOURCE,
        Stage.EXIT,
        "Enlarge /dev/shm (docker --shm-size), or use fewer loader workers.",
        Status.FAILED,
    )
    DISK_FULL = (
        "disk_full",
        Category.RESOURCE,
        Stage.EXIT,
        "Free space on the disk that the traceback names.",
        Status.FAILED,
    )
    FD_EXHAUSTED = (
        "fd_exhausted",
        Category.RESOURCE,
        Stage.EXIT,
        "Raise ulimit -n, and look for files or sockets that are never closed.",
        Status.FAILED,
    )
    PIDS_EXHAUSTED = (
        "pids_exhausted",
        Category.RESOURCE,
        Stage.EXIT,
        "Raise the limit of processes and threads, or start fewer.",
        Status.FAILED,
    )
    PROCESS_FROZEN = (
        "process_frozen",
        Category.RESOURCE,
        Stage.PROCESS,
        "Find who stopped the process (debugger, job control, freezer) and continue it with "
        "SIGCONT.",
    )
    IO_BLOCKED = (
        "io_blocked",
        Category.RESOURCE,
        Stage.PROCESS,
        "Check the file system that the process waits for.",
    )

    PARTITION = (
        "partition",
        Category.NETWORK,
        Stage.STALLED,
        "Check routes and firewalls between the hosts named in the evidence.",
    )
    SLOW_LINK = (
        "slow_link",
        Category.NETWORK,
        Stage.SLOW,
        "Check the link between the hosts named in the evidence.",
        Status.SLOW,
    )
    RENDEZVOUS = (
        "rendezvous",
        Category.NETWORK,
        Stage.EXIT,
        "Check MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and whether every rank was started.",
    )
    STORE_LOST = (
        "store_lost",
        Category.NETWORK,
        Stage.EXIT,
        "Keep the process that hosts the store alive until all ranks are done.",
        Status.FAILED,
    )

    EXCEPTION = (
        "exception",
        Category.SOFTWARE,
        Stage.EXIT,
        "Fix the error in the culprit's traceback; the other ranks only wait for it.",
        Status.FAILED,
    )
    CRASH = (
        "crash",
        Category.SOFTWARE,
        Stage.EXIT,
        "See the culprit's exit code or signal and the end of its stderr; look for a core dump.",
        Status.FAILED,
    )
    PYTHON_DEADLOCK = (
        "python_deadlock",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "See who holds the lock that the culprit waits for, in the stacks of its other threads.",
    )
    GIL_HELD = (
        "gil_held",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "The C code on the culprit's stack must release the GIL while it waits.",
    )
    BUSY_LOOP = (
        "busy_loop",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "See why the condition that the culprit polls never comes true.",
    )
    RANK0_WORK = (
        "rank0_work",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "Let the other ranks wait with a longer timeout, or share the work out.",
        Status.SLOW,
    )
    FORK_DEADLOCK = (
        "fork_deadlock",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "Start the child with spawn or forkserver, or before threads and locks.",
    )
    TEARDOWN = (
        "teardown",
        Category.SOFTWARE,
        Stage.OUTSIDE,
        "See what the culprit waits for at its exit: a thread to join, a process group to destroy.",
    )
    HOST_SYNC = (
        "host_sync",
        Category.SOFTWARE,
        Stage.DIVERGENCE,
        "Do not wait for the device between launches that depend on each other.",
    )

    SLOW_COMPUTE = (
        "slow_compute",
        Category.STRAGGLER,
        Stage.SLOW,
        "Compare the culprit's work with its peers' in the section named.",
        Status.SLOW,
    )
    SLOW_HOST = (
        "slow_host",
        Category.STRAGGLER,
        Stage.SLOW,
        "Compare the culprit's host with the others: clocks, neighbours, cooling.",
        Status.SLOW,
    )
    GC_PAUSE = (
        "gc_pause",
        Category.STRAGGLER,
        Stage.SLOW,
        "Collect garbage on all ranks at the same step, or freeze long-lived objects.",
        Status.SLOW,
    )
    IMBALANCE = (
        "imbalance",
        Category.STRAGGLER,
        Stage.SLOW,
        "Balance the work: sort or pack by sequence length.",
        Status.SLOW,
    )

    GPU_FAULT = (
        "gpu_fault",
        Category.HARDWARE,
        Stage.STALLED,
        "Drain the host and check the GPU's Xid messages.",
    )
    GPU_THROTTLED = (
        "gpu_throttled",
        Category.HARDWARE,
        Stage.SLOW,
        "Check the GPU's power, temperature and clocks.",
        Status.SLOW,
    )
    FABRIC_STALLED = (
        "fabric_stalled",
        Category.HARDWARE,
        Stage.STALLED,
        "Check the fabric and the communication library's version.",
    )
