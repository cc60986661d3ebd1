"""Communication programs: threads of ranks, what they issue, wait for and compute.

A value, without behaviour: :mod:`player` runs it, :mod:`faults` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

#: Peer of a receive that takes from whoever sends first (gloo alone has it).
ANY = -1


@dataclass(frozen=True, slots=True)
class Issue:
    """An operation that a thread hands to a communicator; ``peer`` and ``root`` are ranks."""

    group: str
    kind: str
    numel: int = 64
    dtype: str = "Float"
    peer: int | None = None
    root: int | None = None
    reduction: str = "SUM"
    #: Elements to and from each member of an uneven all_to_all.
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()
    #: Name of its Work within the thread, for a later :class:`Wait`.
    work: str = ""
    line: int = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """Sends and receives of one group that start together (``batch_isend_irecv``)."""

    issues: tuple[Issue, ...]
    work: str = ""
    line: int = 10


@dataclass(frozen=True, slots=True)
class Wait:
    """The thread's later operations follow that Work; with ``host`` the thread itself blocks."""

    work: str
    host: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    ms: float


@dataclass(frozen=True, slots=True)
class Signal:
    """Lets a thread of the same rank pass the :class:`Await` of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Await:
    name: str


Step = Issue | Batch | Wait | Compute | Signal | Await


@dataclass(frozen=True, slots=True)
class Group:
    members: tuple[int, ...]
    description: str = "undefined"
    backend: str = "nccl"


@dataclass(frozen=True)
class Transport:
    """Behaviour of the network, the library and the device of a job, where it may differ."""

    #: Sends, and the root's part of rooted operations, end without their receivers.
    eager: bool = False
    #: Operations whose sizes, types or roots differ end, with undefined results.
    tolerant: bool = False
    #: Communication kernels that find room on a device at once.
    lanes: int = 1_000_000
    #: Open operations of a rank that its launch queue holds before the host blocks.
    queue: int = 1024


@dataclass(frozen=True)
class Program:
    shape: str
    groups: dict[str, Group]
    #: For each rank its threads, for each thread its steps.
    ranks: tuple[tuple[tuple[Step, ...], ...], ...]
    transport: Transport = field(default_factory=Transport)
    #: (rank, group) whose name on that rank differs from its peers'.
    names: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.ranks)

    def name(self, rank: int, group: str) -> str:
        return self.names.get((rank, group), group)

    def groups_of(self, rank: int) -> list[str]:
        return [name for name, group in self.groups.items() if rank in group.members]

    def with_thread(self, rank: int, thread: int, steps: tuple[Step, ...]) -> Program:
        threads = list(self.ranks[rank])
        threads[thread] = steps
        ranks = list(self.ranks)
        ranks[rank] = tuple(threads)
        return replace(self, ranks=tuple(ranks))


def issues_of(step: Step) -> tuple[Issue, ...]:
    if isinstance(step, Batch):
        return step.issues
    return (step,) if isinstance(step, Issue) else ()
