"""The name of the host that a process runs on, as a Case calls it."""

from __future__ import annotations

import os
import socket


def host_name() -> str:
    """This machine's name; that of the node where a scheduler has several nodes on one machine.

    Slurm tells a process its node's name in SLURMD_NODENAME.
    """
    own = socket.gethostname()
    node = os.environ.get("SLURMD_NODENAME", "")
    # As a rule the node is called after its machine, maybe without the domain.
    if not node or node.partition(".")[0] == own.partition(".")[0]:
        return own
    return node
