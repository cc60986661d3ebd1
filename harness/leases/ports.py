"""TCP ports for what must be told its port beforehand, such as NCCL's RAS threads."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hanglab.harness.leases.folder import leases_folder
from hanglab.harness.leases.pool import LeasePool, ResourceKind

#: Below the range from which Linux gives ports to those who do not choose (32768 on).
PORTS: Final = range(20480, 20608)

PORT = ResourceKind("port", "port", "ports")


def port_pool(folder: Path | None = None, ports: Sequence[int] = PORTS) -> LeasePool:
    """The machine's pool of ports on the loopback interface."""
    names = [str(port) for port in ports]
    return LeasePool(folder if folder is not None else leases_folder(), PORT, names, _choose_unused)


def _choose_unused(free: Sequence[str], count: int) -> Sequence[str] | None:
    """Ports that no stranger, who knows nothing of leases, listens at either."""
    chosen: list[str] = []
    for name in free:
        if len(chosen) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", int(name)))
            except OSError:
                continue
        chosen.append(name)
    return chosen if len(chosen) == count else None
