"""The containers of a job, as hosts of its ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.hosts import NotYet
from hanglab.harness.launchers.docker.processes import process_inside

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.networks import Network

#: Microseconds of a period of the processor's quota; the kernel's own default.
_PERIOD_US = 100_000
#: Bytes that no node has: before 23.0 Docker does not take back a limit by any other name.
_LIMITLESS = 1 << 52


@dataclass(frozen=True)
class ContainerHost:
    """Implements :class:`~hanglab.harness.hosts.Host` by one container."""

    number: int
    container: Container
    #: Of the container's first process.
    pid: int
    address: str
    ranks: tuple[int, ...]

    def pause(self) -> None:
        try:
            with _asking("pause"):
                self.container.pause()
        except OSError as failure:
            # Version 1's freezer gives up where processes are just being started.
            if "freeze" in str(failure):
                raise NotYet(str(failure)) from failure
            raise

    def resume(self) -> None:
        with _asking("unpause"):
            self.container.unpause()

    def kill(self) -> None:
        with _asking("kill"):
            self.container.kill()

    def limit_cpus(self, cpus: float | None) -> None:
        quota = -1 if cpus is None else int(cpus * _PERIOD_US)
        with _asking("set the processor quota"):
            self.container.update(cpu_period=_PERIOD_US, cpu_quota=quota)

    def limit_memory(self, size: int | None) -> None:
        limit = _LIMITLESS if size is None else size
        with _asking("set the memory limit"):
            # As much with swap as without: none.
            self.container.update(mem_limit=limit, memswap_limit=limit)

    def was_out_of_memory(self) -> bool:
        with _asking("inspect"):
            self.container.reload()
            return bool(self.container.attrs["State"].get("OOMKilled"))

    def run(self, *command: str) -> str:
        with _asking(f"run {command[0]}"):
            code, said = self.container.exec_run(list(command))
        words = str(said.decode(errors="replace")).strip()
        if code:
            raise OSError(f"{command[0]}: {words}")
        return words

    def source_of(self, path: str) -> str:
        for mount in self.container.attrs["Mounts"]:
            if mount["Destination"] == path:
                return str(mount["Source"])
        raise OSError(f"nothing is mounted at {path} of node {self.number}")


class ContainerHosts(Mapping[int, ContainerHost]):
    """A job's containers by number."""

    def __init__(
        self,
        hosts: Mapping[int, ContainerHost],
        network: Network,
        bridge: str,
        pids: Mapping[int, int],
    ) -> None:
        """``pids``: process id of each rank inside its container, filled in as they start."""
        self._hosts = dict(hosts)
        self._pids = pids
        self.network = network
        #: Name of the interface of this machine that joins them.
        self.bridge = bridge

    def __getitem__(self, number: int) -> ContainerHost:
        return self._hosts[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def of_rank(self, rank: int) -> ContainerHost:
        """The host that a rank runs on.  Raises OSError where there is none."""
        for host in self._hosts.values():
            if rank in host.ranks:
                return host
        raise OSError(f"no container of the job runs rank {rank}")

    def process_of(self, rank: int) -> int:
        """Process id of a rank, as this machine counts them.  Raises ProcessLookupError."""
        pid = self._pids.get(rank)
        if pid is None:
            raise ProcessLookupError(f"rank {rank} has not started")
        return process_inside(self.of_rank(rank).pid, pid)


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Raises OSError for whatever Docker, or the way to it, has against it."""
    try:
        yield
    except OSError as failure:
        raise OSError(f"{what}: {failure.strerror or failure}") from None
    except Exception as failure:  # the SDK's errors, without importing it where nobody has it
        said = getattr(failure, "explanation", None) or str(failure)
        raise OSError(f"{what}: {said}") from None
