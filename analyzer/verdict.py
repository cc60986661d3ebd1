"""Causes, categories and the Verdict: the stable words that the analyzer answers with."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

SCHEMA: Literal["hanglab.verdict/1"] = "hanglab.verdict/1"


class Category(str, Enum):
    """The Flight Recorder tutorial's five kinds of hang, and the two that the field adds."""

    SYNCHRONIZATION = "synchronization"
    DATA_STARVATION = "data_starvation"
    RESOURCE = "resource"
    NETWORK = "network"
    SOFTWARE = "software"
    STRAGGLER = "straggler"
    HARDWARE = "hardware"


class Cause(str, Enum):
    """Root causes.  Users' suites hang on these strings: add, never rename."""

    COLLECTIVE_MISMATCH = "collective_mismatch"
    SKIPPED_COLLECTIVE = "skipped_collective"
    UNEVEN_INPUTS = "uneven_inputs"
    MISSING_RANK = "missing_rank"
    SIZE_MISMATCH = "size_mismatch"
    DTYPE_MISMATCH = "dtype_mismatch"
    ROOT_MISMATCH = "root_mismatch"
    SPLIT_MISMATCH = "split_mismatch"
    GROUP_ORDER = "group_order"
    GROUP_CREATION = "group_creation"
    P2P_DEADLOCK = "p2p_deadlock"
    P2P_UNMATCHED = "p2p_unmatched"

    INPUT_STARVED = "input_starved"
    LOADER_STUCK = "loader_stuck"
    LOADER_WORKER_DIED = "loader_worker_died"
    SLOW_INPUT = "slow_input"

    CPU_THROTTLED = "cpu_throttled"
    MEMORY_PRESSURE = "memory_pressure"
    OOM_KILLED = "oom_killed"
    GPU_OOM = "gpu_oom"
    SHM_EXHAUSTED = "shm_exhausted"
    DISK_FULL = "disk_full"
    FD_EXHAUSTED = "fd_exhausted"
    PIDS_EXHAUSTED = "pids_exhausted"
    PROCESS_FROZEN = "process_frozen"
    IO_BLOCKED = "io_blocked"

    PARTITION = "partition"
    SLOW_LINK = "slow_link"
    RENDEZVOUS = "rendezvous"
    STORE_LOST = "store_lost"

    EXCEPTION = "exception"
    CRASH = "crash"
    PYTHON_DEADLOCK = "python_deadlock"
    GIL_HELD = "gil_held"
    BUSY_LOOP = "busy_loop"
    RANK0_WORK = "rank0_work"
    FORK_DEADLOCK = "fork_deadlock"
    TEARDOWN = "teardown"
    HOST_SYNC = "host_sync"

    SLOW_COMPUTE = "slow_compute"
    SLOW_HOST = "slow_host"
    GC_PAUSE = "gc_pause"
    IMBALANCE = "imbalance"

    GPU_FAULT = "gpu_fault"
    GPU_THROTTLED = "gpu_throttled"
    FABRIC_STALLED = "fabric_stalled"

    @property
    def category(self) -> Category:
        return _CATEGORY[self]


_FIRST_OF_CATEGORY = {
    Cause.COLLECTIVE_MISMATCH: Category.SYNCHRONIZATION,
    Cause.INPUT_STARVED: Category.DATA_STARVATION,
    Cause.CPU_THROTTLED: Category.RESOURCE,
    Cause.PARTITION: Category.NETWORK,
    Cause.EXCEPTION: Category.SOFTWARE,
    Cause.SLOW_COMPUTE: Category.STRAGGLER,
    Cause.GPU_FAULT: Category.HARDWARE,
}
_CATEGORY: dict[Cause, Category] = {}
_current = Category.SYNCHRONIZATION
for _cause in Cause:
    # The members above stand in the order of their categories.
    _current = _FIRST_OF_CATEGORY.get(_cause, _current)
    _CATEGORY[_cause] = _current


class Status(str, Enum):
    HUNG = "hung"
    SLOW = "slow"
    FAILED = "failed"
    HEALTHY = "healthy"
    INCONCLUSIVE = "inconclusive"


class CollectiveRef(msgspec.Struct, frozen=True):
    """The operation that a finding is about; ``seq`` is None for point-to-point without one."""

    group: str
    group_id: str
    ranks: list[int]
    seq: int | None
    op: str


class Location(msgspec.Struct, frozen=True):
    """A line of the user's own code, and the rank that stood there."""

    file: str
    line: int
    function: str
    rank: int


class Evidence(msgspec.Struct, frozen=True):
    """One observation.  ``source`` is a kind of evidence, such as ``flight_recorder``."""

    source: str
    rank: int | None
    detail: str


class Effect(msgspec.Struct, frozen=True):
    """Loss of a slow job: where, how much a step, and which share of it."""

    section: str | None
    ms_per_step: float
    share_of_step: float


class Alternative(msgspec.Struct, frozen=True):
    cause: Cause
    culprits: list[int]
    confidence: float


class Finding(msgspec.Struct, kw_only=True):
    """One independent fault."""

    status: Status
    category: Category | None = None
    cause: Cause | None = None
    culprits: list[int] = []
    victims: list[int] = []
    collective: CollectiveRef | None = None
    location: Location | None = None
    confidence: float = 0.0
    summary: str = ""
    evidence: list[Evidence] = []
    advice: str = ""
    effect: Effect | None = None


class Unusable(msgspec.Struct, frozen=True):
    file: str
    reason: str


class Inputs(msgspec.Struct, kw_only=True):
    """Inputs that the verdict rests on, and what would settle it where it is inconclusive."""

    ranks: int = 0
    missing_ranks: list[int] = []
    unusable: list[Unusable] = []
    would_decide: list[str] = []


class Verdict(msgspec.Struct, kw_only=True):
    """The analyzer's conclusion; its JSON form is ``hanglab.verdict/1``."""

    schema: Literal["hanglab.verdict/1"] = SCHEMA
    status: Status
    category: Category | None = None
    cause: Cause | None = None
    culprits: list[int] = []
    victims: list[int] = []
    collective: CollectiveRef | None = None
    location: Location | None = None
    confidence: float = 0.0
    summary: str = ""
    evidence: list[Evidence] = []
    advice: str = ""
    effect: Effect | None = None
    alternatives: list[Alternative] = []
    findings: list[Finding] = []
    inputs: Inputs = msgspec.field(default_factory=Inputs)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


def json_schema() -> dict[str, object]:
    """JSON Schema of a verdict."""
    return msgspec.json.schema(Verdict)


if __name__ == "__main__":
    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
