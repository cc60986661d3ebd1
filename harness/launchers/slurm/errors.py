"""Errors of Slurm, one sentence each and what to do about it."""

from __future__ import annotations

from hanglab.harness.launchers.protocol import LaunchError


class NoSlurm(LaunchError):
    """Slurm's commands are not installed here."""

    advice = "Run hanglab where jobs are submitted, or use another launcher."


class NoController(LaunchError):
    """Slurm's controller does not answer."""

    advice = "`scontrol ping` shows whether it runs; SLURM_CONF names another cluster's settings."


class NotSubmitted(LaunchError):
    """Slurm takes no such job."""

    advice = (
        "`sinfo` shows the partitions; sbatch's own variables (SBATCH_PARTITION, SBATCH_ACCOUNT, "
        "SBATCH_QOS ...) say where the job goes."
    )
