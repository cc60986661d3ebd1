"""Starts jobs whose nodes are those of Slurm, each job in an allocation of its own."""

from __future__ import annotations

import threading

from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.harness.launchers.slurm.job import SlurmJob


class SlurmLauncher:
    """Safe to share among threads.  Needs Slurm's commands, and a folder that all nodes share."""

    name = "slurm"

    def __init__(self) -> None:
        self._jobs: set[SlurmJob] = set()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Nothing is kept warm: an allocation costs others their turn."""

    def start(self, plan: JobPlan) -> SlurmJob:
        job = SlurmJob(plan)
        try:
            job.begin()
        except BaseException as error:  # Ctrl-C, too: nobody else could end the job
            _end_after(error, job)
            raise
        with self._lock:
            self._jobs = {one for one in self._jobs if not one.over} | {job}
        return job

    def close(self) -> None:
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


def _end_after(error: BaseException, job: SlurmJob) -> None:
    """Ends a job that failed to start; the first error is the one to tell."""
    try:
        job.end()
    except LaunchError as further:
        if not isinstance(error, (LaunchError, OSError)):
            raise further from error
