"""Docker, and the image that nodes are made of."""

from __future__ import annotations

from hanglab.harness.capabilities.registry import Capability, capability, checks
from hanglab.harness.launchers.docker.connection import connect
from hanglab.harness.launchers.docker.errors import address
from hanglab.harness.launchers.docker.image import find_image, image_name
from hanglab.harness.launchers.protocol import LaunchError


@checks("docker")
def _docker() -> Capability:
    try:
        client = connect()
    except LaunchError as failure:
        return _lacking("docker", failure)
    try:
        version = client.version()["Version"]
    finally:
        client.close()
    return Capability("docker", True, f"Docker {version} answers at {address()}")


@checks("image")
def _image() -> Capability:
    docker = capability("docker")
    if not docker.available:
        return Capability("image", False, "no Docker", docker.remedy)
    name = image_name()
    try:
        client = connect()
        try:
            found = find_image(client, name)
        finally:
            client.close()
    except LaunchError as failure:
        return _lacking("image", failure)
    return Capability("image", True, f"{name} is {found.removeprefix('sha256:')[:12]}")


def _lacking(name: str, failure: LaunchError) -> Capability:
    return Capability(name, False, str(failure).rstrip("."), failure.advice)
