"""The job that a rank's process belongs to, as its environment and its namespaces tell it."""

from __future__ import annotations

import os
from typing import NamedTuple

from hanglab.recorder.attach.tree import FoundRank, by_environment
from hanglab.recorder.system import procfs

#: What tells ranks of one job from those of another with the same parent.
JOB_NAMES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")

#: A process's id and its start, in clock ticks since boot: no later one has both.
Process = tuple[int, int]


class JobIdentity(NamedTuple):
    """Everything that one rank says of its job; the same as long as it lives."""

    process: Process
    rank: int
    world_size: int | None
    attempt: int
    parent: int
    #: Case that its environment names.
    case: str
    #: Namespaces of its network and of its process numbers.
    network: str
    container: str
    #: Values of JOB_NAMES.
    names: tuple[str, ...]
    #: Nothing in its environment says that it is a rank: its siblings alone are its job's.
    spawned: bool

    @property
    def address(self) -> str:
        """Of the job's store, "" where nobody says."""
        return self.names[1]

    @property
    def port(self) -> str:
        return self.names[2]

    @property
    def started_s(self) -> float:
        """Seconds since boot."""
        return self.process[1] / os.sysconf("SC_CLK_TCK")

    @property
    def neighbourhood(self) -> tuple[object, ...]:
        """Equal for ranks that are one job's by what they share on the spot.

        A name such as ``localhost`` or ``master-0`` says something within one network only, and a
        container may be another user's.
        """
        # Ranks that srun or mpirun started may have parents of their own.
        parent = self.parent if self.spawned or not any(self.names) else 0
        return (self.case, parent, self.network, self.container, *self.names)

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for all ranks of a job, wherever they run; other jobs may have the same."""
        run, _, *others = self.names
        return (self.world_size, self.attempt, run, *others)


def identity_of(rank: FoundRank, stat: procfs.Stat) -> JobIdentity:
    environment = procfs.environment(rank.pid)
    return JobIdentity(
        (rank.pid, stat.started),
        rank.rank,
        rank.world_size,
        rank.attempt,
        stat.ppid,
        environment.get("HANGLAB_CASE", ""),
        procfs.network_namespace(rank.pid),
        procfs.process_namespace(rank.pid),
        tuple(environment.get(name, "") for name in JOB_NAMES),
        spawned=by_environment(rank.pid) is None,
    )
