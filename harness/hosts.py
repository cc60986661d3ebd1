"""Places where ranks run: what a fault may do to one and ask of it, whatever made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol


class NotYet(OSError):
    """Something that is asked for is not there yet, or not possible yet: to be tried again."""


@dataclass
class HostSettings:
    """Settings of a host; a fault may change them before it is made.

    None leaves a limit to the launcher's own default, but for ``shm_bytes``.
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
    #: By the name that setrlimit gives them (``nofile``, ``nproc``): soft and hard limit alike.
    ulimits: dict[str, int] = field(default_factory=dict)
    #: Mount options by path, such as ``{"/scratch": "size=16m"}``.
    tmpfs: dict[str, str] = field(default_factory=dict)
    #: Folders of this machine that are mounted read-only, by their path on the host.
    read_only: dict[str, str] = field(default_factory=dict)
    #: Capabilities without their CAP_, such as ``SYS_ADMIN``.
    cap_add: set[str] = field(default_factory=set)
    #: Devices as ``/dev/fuse`` or ``/dev/fuse:/dev/fuse:rwm``.
    devices: list[str] = field(default_factory=list)
    #: Goes before the command of every rank, such as ``["faketime", "+1h"]``.
    wrap: list[str] = field(default_factory=list)
    #: What a fault keeps open for the host, such as a file server; closed with the job.
    closing: ExitStack = field(default_factory=ExitStack)


class Host(Protocol):
    """One host of a running job, made for it alone.  All methods raise OSError."""

    @property
    def number(self) -> int: ...

    @property
    def pid(self) -> int:
        """Process, by this machine's count, whose namespaces and control groups are the host's.

        It lives as long as the host does.
        """

    @property
    def address(self) -> str:
        """IPv4 address in the job's network."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that run there."""

    def pause(self) -> None:
        """Lets no process of it run.  Raises NotYet where that may work a moment later."""

    def resume(self) -> None:
        """Lets its processes run again."""

    def kill(self) -> None:
        """Ends every process of it with SIGKILL."""

    def limit_cpus(self, cpus: float | None) -> None:
        """Gives it so many processors' worth of time; None lifts the limit."""

    def limit_memory(self, size: int | None) -> None:
        """Lets it use so many bytes, and no swap; None lifts the limit."""

    def was_out_of_memory(self) -> bool:
        """True if its maker heard of a process killed for want of memory."""

    def run(self, *command: str) -> str:
        """Output of a program that is run there."""

    def source_of(self, path: str) -> str:
        """Folder of this machine that is mounted at ``path``."""


class Hosts(Protocol):
    """Hosts of a running job."""

    def values(self) -> Iterable[Host]:
        """All that a fault may be done to."""

    def of_rank(self, rank: int) -> Host:
        """The host that a rank runs on.  Raises OSError where nothing may be done to it."""

    def process_of(self, rank: int) -> int:
        """Process id of a rank, as this machine counts them.  Raises ProcessLookupError."""


def neighbour(hosts: Hosts, rank: int) -> Host:
    """The first host that is not the rank's own.  Raises OSError where there is none."""
    own = hosts.of_rank(rank).number
    for host in hosts.values():
        if host.number != own:
            return host
    raise OSError("the job has one node only: there is nobody to cut it off from")


class ThisMachine:
    """This machine, shared by ranks with everybody: nothing is done to it."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        """``pids``: process id of each rank, filled in as they start."""
        self._pids = pids

    def values(self) -> tuple[Host, ...]:
        return ()

    def of_rank(self, rank: int) -> Host:
        raise OSError(
            f"rank {rank} runs on this machine itself, to which no fault is done; "
            "use a launcher that gives ranks hosts of their own, such as docker"
        )

    def process_of(self, rank: int) -> int:
        if rank not in self._pids:
            raise ProcessLookupError(f"rank {rank} has not started")
        return self._pids[rank]
