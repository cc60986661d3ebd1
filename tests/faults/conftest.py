"""Plain containers of the image, as nodes of a job without its ranks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conditions import wait_for

from hanglab.harness.capabilities import capability
from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.hosts import HostSettings
from hanglab.harness.launchers.docker.containers import read_only_mounts
from hanglab.harness.launchers.docker.hosts import ContainerHost, ContainerHosts

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.networks import Network

Make = Callable[..., ContainerHosts]
_LABEL = "hanglab.test.faults"


@pytest.fixture(scope="session")
def docker_client() -> Iterator[DockerClient]:
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(autouse=True)
def able(request: pytest.FixtureRequest) -> None:
    """Skips a test whose faults this machine cannot stage."""
    callspec = getattr(request.node, "callspec", None)
    given = callspec.params.get("fault") if callspec is not None else None
    needs = [given.needs] if isinstance(given, HostFault) else []
    marker = request.node.get_closest_marker("stages")
    needs += marker.args if marker is not None else ()
    for need in needs:
        found = capability(need)
        if not found.available:
            pytest.skip(f"needs {need}: {found.reason}; {found.remedy}")


@pytest.fixture(scope="module")
def network(docker_client: DockerClient) -> Iterator[Network]:
    made = docker_client.networks.create(
        f"hanglab-test-{secrets.token_hex(4)}", labels={_LABEL: str(os.getpid())}
    )
    yield made
    made.remove()


@pytest.fixture
def make_nodes(docker_client: DockerClient, network: Network) -> Iterator[Make]:
    """Starts containers whose first process is the rank; removed after the test."""
    made: list[Any] = []
    settings: list[HostSettings] = []

    def make(
        *programs: str, shape: Callable[[int, HostSettings], None] | None = None
    ) -> ContainerHosts:
        return _make(docker_client, network, programs, shape, made, settings)

    yield make
    for container in made:
        container.remove(force=True)
    for one in settings:
        one.closing.close()


@pytest.fixture(scope="module")
def pair(docker_client: DockerClient, network: Network) -> Iterator[ContainerHosts]:
    """Three nodes that only sleep, for faults of the network."""
    made: list[Any] = []
    yield _make(docker_client, network, ["sleep"] * 3, None, made, [])
    for container in made:
        container.remove(force=True)


def _make(
    client: DockerClient,
    network: Network,
    programs: tuple[str, ...] | list[str],
    shape: Callable[[int, HostSettings], None] | None,
    made: list[Any],
    kept: list[HostSettings],
) -> ContainerHosts:
    nodes = {}
    for number, program in enumerate(programs):
        settings = HostSettings(ranks=(number,), environment={"MASTER_PORT": "29555"})
        kept.append(settings)
        if shape is not None:
            shape(number, settings)
        command = ["sleep", "600"] if program == "sleep" else ["python", "-c", program]
        container = client.containers.run(
            os.environ.get("HANGLAB_IMAGE", "hanglab:latest"),
            command[1:],
            entrypoint=command[:1],
            detach=True,
            network=network.name,
            name=f"{network.name}-{secrets.token_hex(3)}",
            labels={_LABEL: str(os.getpid())},
            environment=settings.environment,
            shm_size=settings.shm_bytes,
            tmpfs=settings.tmpfs,
            mounts=read_only_mounts(settings.read_only),
        )
        made.append(container)
        container.reload()
        wait_begun(container.attrs["State"]["Pid"])
        address = container.attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"]
        nodes[number] = ContainerHost(
            number, container, container.attrs["State"]["Pid"], address, (number,)
        )
    return ContainerHosts(nodes, network, f"br-{network.id[:12]}", dict.fromkeys(nodes, 1))


def wait_begun(pid: int) -> None:
    """Until the container's own program runs, not the one that starts it."""
    environ = Path(f"/proc/{pid}/environ")
    wait_for(lambda: b"MASTER_PORT=" in environ.read_bytes(), "the container's program")
