"""Whether a file in a container can be read: by reading it, in a process that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys

from hanglab.harness.probes.probe import Reading

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
    def __init__(self, pid: int, path: str) -> None:
        self._root, self._path = f"/proc/{pid}/root", path
        came = self._read(_PATIENCE_S)
        if came != "read":
            raise OSError(f"{path} could not be read even before: {came}")

    def struck(self) -> Reading:
        came = self._read(_LONG_S)
        return Reading(came == "no answer", f"reading {self._path}: {came}", {"read": came})

    def ended(self) -> Reading:
        if not os.path.isdir(self._root):
            return Reading(True, "the container has gone")
        came = self._read(_PATIENCE_S)
        return Reading(came == "read", f"reading {self._path}: {came}", {"read": came})

    def _read(self, patience_s: float) -> str:
        command = [sys.executable, "-S", "-E", "-c", _PROGRAM, self._root + self._path]
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
