"""The nodes of a job in containers: what is set before they are made, and where they are then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hanglab.harness.launchers.docker.processes import process_inside

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.networks import Network
    from docker.types import Mount


@dataclass
class NodeSettings:
    """What a container is made with; a fault may change it before that.

    None leaves a limit to Docker's own default, but for ``shm_bytes``.
    """

    #: The ranks that will run there.
    ranks: tuple[int, ...] = ()
    #: Of the ranks and of the recorder beside them.
    environment: dict[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    #: Processors' worth of time, a fraction or more.
    cpus: float | None = None
    #: Processes and threads in all.
    pids: int | None = None
    #: Size of /dev/shm.
    shm_bytes: int | None = 1 << 30
    #: By the name that Docker gives them (``nofile``, ``nproc``): soft and hard limit alike.
    ulimits: dict[str, int] = field(default_factory=dict)
    #: Mount options by path, such as ``{"/scratch": "size=16m"}``.
    tmpfs: dict[str, str] = field(default_factory=dict)
    #: Capabilities without their CAP_, such as ``SYS_ADMIN``.
    cap_add: set[str] = field(default_factory=set)
    #: Devices as ``/dev/fuse`` or ``/dev/fuse:/dev/fuse:rwm``.
    devices: list[str] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    #: Goes before the command of every rank, such as ``["faketime", "+1h"]``.
    wrap: list[str] = field(default_factory=list)
    #: What a fault keeps open for the container, such as a file server; closed with the job.
    closing: ExitStack = field(default_factory=ExitStack)


@dataclass(frozen=True)
class Node:
    """One container of a running job."""

    number: int
    container: Container
    #: Of the container's first process, as the host counts them.
    pid: int
    #: IPv4 address in the job's network.
    address: str
    ranks: tuple[int, ...]


class Nodes(Mapping[int, Node]):
    """A job's nodes by number."""

    def __init__(
        self, nodes: Mapping[int, Node], network: Network, bridge: str, pids: Mapping[int, int]
    ) -> None:
        """``pids``: process id of each rank inside its container, filled in as they start."""
        self._nodes = dict(nodes)
        self._pids = pids
        self.network = network
        #: Name of the host's interface that joins the nodes.
        self.bridge = bridge

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def of_rank(self, rank: int) -> Node:
        """The node that a rank runs on.  Raises KeyError."""
        for node in self._nodes.values():
            if rank in node.ranks:
                return node
        raise KeyError(rank)

    def process_of(self, rank: int) -> int:
        """Process id of a rank, as the host counts them.  Raises ProcessLookupError."""
        pid = self._pids.get(rank)
        if pid is None:
            raise ProcessLookupError(f"rank {rank} has not started")
        return process_inside(self.of_rank(rank).pid, pid)
