"""A file system whose server stops answering, as NFS does: who reads it sleeps in the kernel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.node_fault import NodeFault, Undo
from hanglab.harness.probes.reading import ReadProbe

if TYPE_CHECKING:
    from docker.models.containers import Container

    from hanglab.harness.launchers.docker.nodes import Nodes, NodeSettings

_PATIENCE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class BlockDisk(NodeFault):
    """Every node has the file ``data`` of ``mebibytes`` of zeros at ``at``, kept by a server.

    That of the rank's node stops answering.
    """

    at: str = "/storage"
    mebibytes: int = 64
    needs = "outside_storage"

    def prepare(self, number: int, settings: NodeSettings) -> None:
        from docker.types import Mount

        server = settings.closing.enter_context(FileServer(self.mebibytes << 20))
        settings.mounts.append(Mount(self.at, server.folder, type="bind", read_only=True))

    def strike_node(self, nodes: Nodes) -> Undo:
        server = _server_at(nodes.of_rank(self.rank).container, self.at)
        server.order("stop")
        return lambda: server.order("go")

    def probe(self, nodes: Nodes) -> ReadProbe:
        return ReadProbe(nodes.of_rank(self.rank).pid, f"{self.at}/data")


#: Servers of this process by their folder, which is all that a container knows of its mount.
_SERVERS: dict[str, FileServer] = {}


def _server_at(container: Container, path: str) -> FileServer:
    for mount in container.attrs["Mounts"]:
        if mount["Destination"] == path and mount["Source"] in _SERVERS:
            return _SERVERS[mount["Source"]]
    raise OSError(f"the container has no file server at {path}")


class FileServer:
    """A folder of the host with one file, served by a process of its own."""

    def __init__(self, size: int) -> None:
        """Raises OSError."""
        self.folder = tempfile.mkdtemp(prefix="hanglab-storage-")
        server = "hanglab.harness.faults.outside.file_server"
        self._process = subprocess.Popen(
            [sys.executable, "-m", server, self.folder, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._answer() != "ready":
            assert self._process.stderr is not None
            said = self._process.stderr.read().strip()
            self.close()
            raise OSError(f"no file system can be served: {said or 'no answer'}")
        _SERVERS[self.folder] = self

    def order(self, what: str) -> None:
        """``stop`` or ``go``; back when it is done.  Raises OSError."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        if self._answer() != "done":
            raise OSError("the file server has ended")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """Unmounts and removes the folder."""
        _SERVERS.pop(self.folder, None)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)

    def __enter__(self) -> FileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
