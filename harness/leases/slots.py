"""Slots for jobs: a job holds one while it runs, so that a machine is not overrun."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from hanglab.harness.leases.folder import leases_folder
from hanglab.harness.leases.pool import LeasePool, ResourceKind, Tell

#: Ranks mostly wait, so a processor bears more than one job.
JOBS_PER_CPU = 2

CPU = ResourceKind("cpu", "slot for a job", "slots for jobs")


class CpuSlots:
    """The machine's slots for jobs."""

    def __init__(self, folder: Path | None = None, count: int | None = None) -> None:
        self.count = count or JOBS_PER_CPU * len(os.sched_getaffinity(0))
        names = [str(number) for number in range(self.count)]
        self._pool = LeasePool(folder if folder is not None else leases_folder(), CPU, names)

    @contextlib.contextmanager
    def lease(
        self,
        stop: threading.Event,
        waiting: Tell = lambda reason: None,
        purpose: str = "",
    ) -> Iterator[int | None]:
        """Holds a slot and gives its number; None where ``stop`` was set before one was free.

        ``waiting`` is told for what it waits.  Raises OSError.
        """
        with self._pool.lease(1, stop, waiting, purpose) as names:
            yield int(names[0]) if names else None
