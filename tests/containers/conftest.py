"""A launcher of jobs in containers, and Docker itself, for those who look behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from hanglab.harness.launchers.docker.launcher import DockerLauncher

if TYPE_CHECKING:
    from docker import DockerClient


@pytest.fixture(scope="module")
def launcher() -> Iterator[DockerLauncher]:
    made = DockerLauncher()
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerClient]:
    import docker

    client = docker.from_env()
    yield client
    client.close()
