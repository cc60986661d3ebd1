"""Removing containers and networks whose hanglab has ended without doing it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hanglab.harness.launchers import owners
from hanglab.harness.launchers.docker.errors import explained
from hanglab.harness.launchers.docker.network import remove_network
from hanglab.harness.launchers.protocol import RemainsLeft
from hanglab.harness.launchers.supervision.leftovers import remove_tree

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container


@dataclass(frozen=True)
class Reaped:
    """Names of what was removed."""

    containers: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()


def remove_containers(containers: Iterable[Container]) -> None:
    """Ends and removes them side by side.  Raises LaunchError, and RemainsLeft."""
    import docker.errors

    def remove(container: Container) -> None:
        with explained(f"Removing container {container.name}"), suppress(docker.errors.NotFound):
            try:
                container.remove(force=True, v=True)
            except docker.errors.APIError as error:
                if "already in progress" in str(error):
                    container.wait(condition="removed", timeout=30)
                elif "is zombie" in str(error) or "could not kill" in str(error).lower():
                    raise RemainsLeft(f"Container {container.name} does not end.") from error
                else:
                    raise

    doomed = list(containers)
    if doomed:
        with ThreadPoolExecutor(len(doomed), "hanglab-docker") as pool:
            for future in [pool.submit(remove, container) for container in doomed]:
                future.result()


def reap(client: DockerClient, everything: bool = False) -> Reaped:
    """Removes what jobs have left whose hanglab has ended.

    ``everything``: also what belongs to hanglabs that run, or cannot be seen
    from here.  Raises LaunchError.
    """
    with explained("Looking for what ended jobs have left"):
        mine = {"label": owners.OWNER}
        containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
        networks = client.networks.list(filters=mine)
    gone = [c for c in containers if everything or owners.is_dead(c.labels)]
    remove_containers(gone)
    removed = []
    for network in networks:
        labels = network.attrs.get("Labels") or {}
        if everything or owners.is_dead(labels):
            remove_network(network)
            shared = Path(labels.get(owners.SHARED, ""))
            if shared.name.startswith("hanglab-"):  # whatever a stranger's label may say
                remove_tree(shared)
            removed.append(network.name)
    return Reaped(tuple(sorted(c.name for c in gone)), tuple(sorted(removed)))
