"""Slots for jobs, shared by everything of one user on a machine: a job holds one while it runs.

A slot is a file with a lock on it.  The lock belongs to the open file, so it
ends with its holder, however that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

#: Ranks mostly wait, so a processor bears more than one job.
JOBS_PER_CPU = 2
#: Pause between two looks for a free slot, in seconds.
POLL_S = 0.1


def leases_folder() -> Path:
    """Where the locks lie.  It stays, so that all who come later meet at the same files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hanglab" / "leases"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"hanglab-{os.getuid()}-leases"
    fallback.mkdir(mode=0o700, exist_ok=True)
    return fallback


class CpuSlots:
    """The machine's slots for jobs."""

    def __init__(self, folder: Path | None = None, count: int | None = None) -> None:
        self.folder = folder if folder is not None else leases_folder()
        self.count = count or JOBS_PER_CPU * len(os.sched_getaffinity(0))

    @contextlib.contextmanager
    def lease(
        self,
        stop: threading.Event,
        waiting: Callable[[str], None] = lambda reason: None,
    ) -> Iterator[int | None]:
        """Holds a slot and gives its number; None where ``stop`` was set before one was free.

        ``waiting`` is told once for what it waits.  Raises OSError.
        """
        told = False
        while not stop.is_set():
            for number in range(self.count):
                fd = self._try(number)
                if fd is None:
                    continue
                try:
                    yield number
                finally:
                    os.close(fd)
                return
            if not told:
                waiting(f"all {self.count} slots for jobs on this machine are taken")
                told = True
            stop.wait(POLL_S)
        yield None

    def _try(self, number: int) -> int | None:
        fd = os.open(
            self.folder / f"cpu-{number}.lock",
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd
