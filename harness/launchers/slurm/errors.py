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


class NotStarted(LaunchError):
    """A job waits in Slurm's queue, or has been thrown out of it."""

    advice = (
        "`sinfo` shows which nodes are free; HANGLAB_SLURM_WAIT is how many seconds a job may "
        "wait (600), SBATCH_PARTITION where it goes."
    )


class NotShared(LaunchError):
    """A node does not see the folder that the job's Case is written to."""

    advice = "Have --out name a folder that all nodes share, such as one in your home."


class NodeFailed(LaunchError):
    """hanglab's own process on a node did not come up."""

    advice = "The nodes need hanglab, and the same Python at the same path, as this host has."
