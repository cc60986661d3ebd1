"""The image that nodes are made of, and whether it fits this hanglab."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hanglab.harness.launchers.docker.errors import NoImage, UnfitImage, explained

if TYPE_CHECKING:
    from docker import DockerClient

#: Names another image.
VARIABLE: Final = "HANGLAB_IMAGE"
DEFAULT: Final = "hanglab:latest"
LABEL: Final = "hanglab.version"
#: Where the Dockerfile puts the environment.
PYTHON: Final = "/opt/hanglab/bin/python"
#: Who runs in it where hanglab itself is root: the Dockerfile's user.
USER: Final = (1000, 1000)


def image_name() -> str:
    return os.environ.get(VARIABLE) or DEFAULT


def find_image(client: DockerClient, name: str) -> str:
    """Id of the image.  Raises NoImage, UnfitImage or another LaunchError."""
    import docker.errors

    with explained("Looking for the image"):
        try:
            image = client.images.get(name)
        except docker.errors.ImageNotFound:
            raise NoImage(f"There is no image {name}.") from None
    held = (image.labels or {}).get(LABEL)
    if held is None:
        raise UnfitImage(f"The image {name} holds no hanglab: it has no label {LABEL}.")
    mine = version("hanglab")
    if held != mine:
        raise UnfitImage(f"The image {name} holds hanglab {held}, and this is {mine}.")
    return str(image.id)


def checkout() -> Path | None:
    """Root of the working copy whose code this process runs; None where it was installed.

    Its code then runs in the containers, too, so that an image need not be built anew
    for every change.
    """
    root = Path(os.path.realpath(__file__)).parents[3]
    return root if (root / "pyproject.toml").is_file() else None
