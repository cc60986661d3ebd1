"""A file system whose server stops answering, as NFS does: who reads it sleeps in the kernel."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from hanglab.harness.faults.host_fault import HostFault, Undo
from hanglab.harness.faults.proof import Reading, host_gone
from hanglab.harness.hosts import Host, Hosts, HostSettings
from hanglab.harness.system.file_server import FileServer, file_server_of


@dataclass(frozen=True, kw_only=True)
class BlockDisk(HostFault):
    """Every node has the file ``data`` of ``mebibytes`` of zeros at ``at``, kept by a server.

    That of the rank's node stops answering.
    """

    at: str = "/storage"
    mebibytes: int = 64
    needs = "outside_storage"

    def prepare(self, number: int, settings: HostSettings) -> None:
        server = settings.closing.enter_context(FileServer(self.mebibytes << 20))
        settings.read_only[self.at] = server.folder

    def strike_host(self, hosts: Hosts) -> Undo:
        server = file_server_of(hosts.of_rank(self.rank).source_of(self.at))
        server.order("stop")
        return lambda: server.order("go")

    def probe(self, hosts: Hosts) -> ReadProbe:
        return ReadProbe(hosts.of_rank(self.rank), f"{self.at}/data")


#: How long a read may take where the server answers, on a machine under load.
_PATIENCE_S = 15.0
#: How long one is waited for that is not expected to come back.
_LONG_S = 1.5
#: Says when it begins, for an interpreter may take long to start.  The last byte is read past
#: the page cache.
_PROGRAM = """
import os, sys
os.write(1, b"x")
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
os.pread(file, 1, os.fstat(file).st_size - 1)
"""


class ReadProbe:
    """A read of a file of the host, in a process that can be killed."""

    def __init__(self, host: Host, path: str) -> None:
        self._host, self._path = host, path
        came = self._read(_PATIENCE_S)
        if came != "read":
            raise OSError(f"{path} could not be read even before: {came}")

    def struck(self) -> Reading:
        came = self._read(_LONG_S)
        return Reading(came == "no answer", f"reading {self._path}: {came}", {"read": came})

    def ended(self) -> Reading:
        if gone := host_gone(self._host):
            return gone
        came = self._read(_PATIENCE_S)
        return Reading(came == "read", f"reading {self._path}: {came}", {"read": came})

    def _read(self, patience_s: float) -> str:
        seen_from_here = f"/proc/{self._host.pid}/root{self._path}"
        command = [sys.executable, "-S", "-E", "-c", _PROGRAM, seen_from_here]
        reader = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert reader.stdout is not None
        reader.stdout.read(1)
        try:
            _, said = reader.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            reader.kill()
            reader.communicate()
            return "no answer"
        lines = said.decode(errors="replace").strip().splitlines()
        return "read" if reader.returncode == 0 else (lines[-1] if lines else "failed")
