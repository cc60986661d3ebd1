"""Identity of a process from outside: its rank, its world size and its job.

By the recorder's own registration where the job is recorded, else by what the
launcher put into its environment.  A launcher sees no RANK; a loader worker sees
its parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hanglab.recorder.system import procfs

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_JOBS = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID")


@dataclass(frozen=True)
class Identity:
    """Rank, world size and job of one process."""

    #: As the agent sees it; None where it lies in another pid namespace.
    pid: int | None
    rank: int | None = None
    world_size: int | None = None
    #: Every name by which people may mean the job.
    jobs: frozenset[str] = field(default_factory=frozenset)
    command: str = ""
    #: Start in clock ticks since boot: tells it from a later process with its id.
    started: int | None = None
    #: Whether its rank is its own by name (RANK, or registered), not a scheduler's task number.
    own_rank: bool = False
    #: Its ancestors as the agent sees them, nearest first.
    ancestors: tuple[int, ...] = ()


#: (rank, world size, job) of a process that the recorder knows; None for others.
Registered = Callable[[int], tuple[int, int | None, str] | None]


def identify(pid: int, registered: Registered | None = None) -> Identity:
    """Look a process up in /proc, and in the Case if it is recorded."""
    environment = procfs.environment(pid)
    stat = procfs.stat(pid)
    known = registered(pid) if registered is not None else None
    jobs = {environment[name] for name in _JOBS if environment.get(name)}
    array = environment.get("SLURM_ARRAY_JOB_ID")
    if array:
        jobs.add(array)
        if task := environment.get("SLURM_ARRAY_TASK_ID"):
            jobs.add(f"{array}_{task}")
    rank = _number(environment, _RANK)
    world = _number(environment, _WORLD)
    own = "RANK" in environment
    if known is not None:
        rank, world, own = known[0], known[1] or world, True
        jobs.add(known[2])
    return Identity(
        pid=pid,
        rank=rank,
        world_size=world,
        jobs=frozenset(jobs),
        command=" ".join(procfs.command_line(pid))[:200],
        started=stat.started if stat is not None else None,
        own_rank=own,
        ancestors=_ancestors(pid),
    )


def alive(identity: Identity) -> bool:
    """True if the process still runs.  One in another namespace counts as alive."""
    if identity.pid is None:
        return True
    stat = procfs.stat(identity.pid)
    return stat is not None and stat.state not in "ZX" and stat.started == identity.started


def ranks_among(identities: Mapping[str, Identity]) -> set[str]:
    """Keys of those that are ranks: neither launchers nor the processes below a rank.

    Of processes that share a rank along one line of descent the topmost that has
    no rank of its own below it counts: a scheduler's task number is also seen by
    the launcher that it starts.
    """
    ranks = {key: one for key, one in identities.items() if one.rank is not None}
    by_pid = {one.pid: key for key, one in ranks.items() if one.pid is not None}
    found = set(ranks)
    for key, one in ranks.items():
        above = [by_pid[pid] for pid in one.ancestors if pid in by_pid]
        for other in above:
            if one.own_rank and not ranks[other].own_rank:
                # torchrun under srun: the launcher has a task number only.
                found.discard(other)
            elif ranks[other].rank == one.rank:
                found.discard(key)
    return found


def _ancestors(pid: int) -> tuple[int, ...]:
    above: list[int] = []
    stat = procfs.stat(pid)
    while stat is not None and stat.ppid > 0 and len(above) < 16:
        above.append(stat.ppid)
        stat = procfs.stat(stat.ppid)
    return tuple(above)


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environment.get(name, "")
        if value.isdecimal():
            return int(value)
    return None
