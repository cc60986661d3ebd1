"""The jobs that a launcher has started, to be ended with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from hanglab.harness.launchers.protocol import LaunchError


class StartedJob(Protocol):
    """A job as its launcher sees it."""

    @property
    def over(self) -> bool:
        """True if everything of it has been ended and removed."""

    def end(self) -> None:
        """Ends everything of it.  Raises LaunchError."""


_Job = TypeVar("_Job", bound=StartedJob)


class RunningJobs(Generic[_Job]):
    """Safe to share among threads."""

    def __init__(self) -> None:
        self._jobs: set[_Job] = set()
        self._lock = threading.Lock()

    def start(self, job: _Job, begin: Callable[[], None]) -> _Job:
        """The job, once ``begin`` has started it; ended again where that fails."""
        try:
            begin()
        except BaseException as error:  # Ctrl-C, too: nobody else could end the job
            _end_after(error, job)
            raise
        with self._lock:
            self._jobs = {one for one in self._jobs if not one.over} | {job}
        return job

    def end(self) -> None:
        """Ends all that still run; raises the first LaunchError at the end."""
        with self._lock:
            jobs, self._jobs = list(self._jobs), set()
        failures: list[LaunchError] = []
        for job in jobs:
            try:
                job.end()
            except LaunchError as error:
                failures.append(error)
        if failures:
            raise failures[0]


def _end_after(error: BaseException, job: StartedJob) -> None:
    """Ends a job that failed to start; the first error is the one to tell."""
    try:
        job.end()
    except LaunchError as further:
        if not isinstance(error, (LaunchError, OSError)):
            raise further from error
