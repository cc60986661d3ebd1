"""The environment of everything in a node's container."""

from __future__ import annotations

from collections.abc import Mapping

from hanglab.harness.launchers.docker import container_paths, image
from hanglab.harness.launchers.nodes.container_environment import container_environment
from hanglab.harness.launchers.protocol import JobPlan

#: The rendezvous; every node has all ports to itself.
MASTER_PORT = 29500
#: Docker's name of the interface in the job's network.
_INTERFACE = "eth0"


def node_environment(plan: JobPlan, number: int, nodes: int) -> dict[str, str]:
    """Environment of a node's container, which its ranks inherit."""
    environment = container_environment(plan, number, nodes, container_paths.NODE)
    # On one host ranks talk over loopback, which would not reach another container.
    environment.update(GLOO_SOCKET_IFNAME=_INTERFACE, NCCL_SOCKET_IFNAME=_INTERFACE)
    environment.update(MASTER_PORT=str(MASTER_PORT))
    if image.checkout() is not None:
        environment["PYTHONPATH"] = container_paths.SOURCE
    return environment


def meeting_point(addresses: Mapping[int, str]) -> dict[str, str]:
    """Variables known only when all containers are there; one that is set before stays."""
    return {"MASTER_ADDR": addresses[0]}
