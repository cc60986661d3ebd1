"""Whether a file in a container can be read: by reading it, in a process that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys

from hanglab.harness.probes.probe import Reading

_PATIENCE_S = 1.0
#: Past what the page cache may hold: a byte that nobody has read yet.
_PROGRAM = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
size = os.fstat(file).st_size
os.pread(file, 1, size - 1)
"""


class ReadProbe:
    def __init__(self, pid: int, path: str) -> None:
        self._root, self._path = f"/proc/{pid}/root", path
        came = self._read()
        if came != "read":
            raise OSError(f"{path} could not be read even before: {came}")

    def struck(self) -> Reading:
        came = self._read()
        return Reading(came == "no answer", f"reading {self._path}: {came}", {"read": came})

    def ended(self) -> Reading:
        if not os.path.isdir(self._root):
            return Reading(True, "the container has gone")
        came = self._read()
        return Reading(came == "read", f"reading {self._path}: {came}", {"read": came})

    def _read(self) -> str:
        command = [sys.executable, "-S", "-E", "-c", _PROGRAM, self._root + self._path]
        reader = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            _, said = reader.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            reader.kill()
            reader.communicate()
            return "no answer"
        lines = said.decode(errors="replace").strip().splitlines()
        return "read" if reader.returncode == 0 else (lines[-1] if lines else "failed")
