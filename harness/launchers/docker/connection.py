"""The way to the Docker daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hanglab.harness.launchers.docker.errors import MissingSdk, NotHere, address, explained

if TYPE_CHECKING:
    from docker import DockerClient

#: Seconds for the daemon to answer: to remove a container takes it some on a busy machine.
_TIMEOUT_S = 60


def connect() -> DockerClient:
    """Raises LaunchError where no daemon on this machine can be used."""
    try:
        import docker
    except ImportError:
        raise MissingSdk("The docker launcher needs the Python package `docker`.") from None
    if not address().startswith(("unix://", "http+unix://")):
        raise NotHere(f"The Docker daemon at {address()} is not on this machine.")
    with explained("Asking for the version of Docker"):
        return docker.DockerClient.from_env(version="auto", timeout=_TIMEOUT_S, max_pool_size=64)
