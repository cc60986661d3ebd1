"""A file system that a server far away keeps, and that stops answering when it is told to."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import tempfile
from pathlib import Path

from hanglab.harness.system.fuse import DEVICE, SingleFile
from hanglab.harness.system.mounts import mount


class Storage:
    """Mounted in the calling rank alone.  ``file`` holds ``size`` bytes of zeros."""

    def __init__(self, size: int) -> None:
        self._served = SingleFile(size)
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        folder = tempfile.mkdtemp(prefix="storage-")
        options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        mount("hanglab", folder, "fuse", options)
        listening, self._line = os.pipe()
        self._rank = os.getpid()
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
                os.close(self._line)
                self._serve(device, listening)
            os._exit(0)
        os.close(device)
        os.close(listening)
        self.file = Path(folder) / SingleFile.name

    def go_away(self) -> None:
        """From now on nothing is answered any more, for as long as the rank lives."""
        os.write(self._line, b".")

    def _serve(self, device: int, line: int) -> None:
        """Answers until told to be silent, then stays there; ends with the rank."""
        while True:
            ready, _, _ = select.select([device, line], [], [])
            if line in ready:
                os.read(line, 1)
                os.read(line, 1)
                return
            if not self._served.serve_one(device):
                return
