"""A job's own network: a bridge that nothing else is joined to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from hanglab.harness.launchers.docker.errors import explained

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.networks import Network


def bridge_of(job: str) -> str:
    """Name of the host's interface, which must be shorter than 16 characters."""
    return f"hl-{job}"


def make_network(client: DockerClient, name: str, job: str, labels: Mapping[str, str]) -> Network:
    """Raises LaunchError."""
    with explained("Making a network"):
        return client.networks.create(
            name,
            driver="bridge",
            check_duplicate=True,
            labels=dict(labels),
            options={"com.docker.network.bridge.name": bridge_of(job)},
        )


def remove_network(network: Network) -> None:
    """Joined containers, which must have gone, are let go by force.  Raises LaunchError."""
    import docker.errors

    with explained(f"Removing network {network.name}"):
        with suppress(docker.errors.NotFound):
            network.reload()
            for container in network.attrs.get("Containers") or {}:
                with suppress(docker.errors.APIError):
                    network.disconnect(container, force=True)
            network.remove()
