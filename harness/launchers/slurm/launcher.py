"""Starts jobs whose nodes are those of Slurm, each job in an allocation of its own."""

from __future__ import annotations

from hanglab.harness.launchers.nodes.running_jobs import RunningJobs
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.slurm.job import SlurmJob


class SlurmLauncher:
    """Safe to share among threads.  Needs Slurm's commands, and a folder that all nodes share."""

    name = "slurm"

    def __init__(self) -> None:
        self._jobs = RunningJobs[SlurmJob]()

    def prepare(self) -> None:
        """Nothing is kept warm: an allocation costs others their turn."""

    def start(self, plan: JobPlan) -> SlurmJob:
        job = SlurmJob(plan)
        return self._jobs.start(job, job.begin)

    def close(self) -> None:
        self._jobs.end()
