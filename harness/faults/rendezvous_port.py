"""Address at which the ranks of a job are to meet, by what the launcher told one of them."""

from __future__ import annotations

from hanglab.harness.hosts import Hosts, NotYet
from hanglab.recorder.system import procfs


def rendezvous_port(hosts: Hosts, rank: int) -> int:
    """MASTER_PORT of a rank.  Raises NotYet while the rank is not there."""
    value = variable(hosts, rank, "MASTER_PORT")
    if value is None:
        raise NotYet(f"rank {rank} has no MASTER_PORT")
    return int(value)


def variable(hosts: Hosts, rank: int, name: str) -> str | None:
    """A variable that a rank was started with; None where it has none.  Raises NotYet."""
    try:
        pid = hosts.process_of(rank)
    except ProcessLookupError as failure:
        raise NotYet(str(failure)) from None
    return procfs.environment(pid).get(name)
