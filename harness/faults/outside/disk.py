"""A disk that somebody else fills while the job runs."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.room import RoomProbe

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Nodes, NodeSettings

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FillDisk(NodeFault):
    """Fills the disk of ``mebibytes`` that every node has at ``at``, to the last byte.

    It is a tmpfs: what the kernel says of a full one is the same.
    """

    at: str = "/scratch"
    mebibytes: int = 16
    needs = "outside_processes"

    def prepare(self, number: int, settings: NodeSettings) -> None:
        settings.tmpfs[self.at] = f"size={self.mebibytes}m,mode=1777"

    def strike_node(self, nodes: Nodes) -> Undo:
        folder = f"/proc/{nodes.of_rank(self.rank).pid}/root{self.at}"
        ballast = f"{folder}/.ballast-{secrets.token_hex(4)}"

        def clear() -> None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(ballast)

        fill(ballast)
        return clear

    def probe(self, nodes: Nodes) -> RoomProbe:
        return RoomProbe(nodes.of_rank(self.rank).pid, self.at)


def fill(path: str) -> None:
    """Writes a file until nothing more fits beside it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        size, piece = 0, _PIECE
        while piece:
            try:
                os.posix_fallocate(descriptor, size, piece)
                size += piece
            except OSError:
                piece = piece // 2 if piece > 4096 else 0
    finally:
        os.close(descriptor)
