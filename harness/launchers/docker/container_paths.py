"""Paths inside a node's container, and the program that runs there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hanglab.harness.launchers.nodes.processes import NodePaths
from hanglab.recorder.system import procfs

CASE: Final = "/case"
LOG: Final = "/log"
#: Shared with hanglab: its socket, and the nodes' orders.
SHARED: Final = "/run/hanglab"
LINK: Final = f"{SHARED}/link"
#: TMPDIR of the ranks, and the recorder's runtime folder.
TEMPORARY: Final = "/tmp/hanglab"
NODE: Final = NodePaths(Path(CASE), Path(LOG), Path(TEMPORARY))
#: Holds the folder ``hanglab`` where the code of a checkout stands in for the image's.
SOURCE: Final = "/opt/hanglab-source"


def everyone() -> set[int]:
    """Every process of this container that has not ended."""
    return {pid for pid in procfs.everyone() if not procfs.has_ended(pid)}


def below(pid: int) -> set[int]:
    """The processes below one of them that have not ended."""
    return {child for child in procfs.descendants([pid])[pid] if not procfs.has_ended(child)}
