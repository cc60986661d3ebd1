"""Slurm, as its controller answers."""

from __future__ import annotations

from hanglab.harness.capabilities.registry import Capability, checks
from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.slurm.commands import ask, command_of


@checks("slurm")
def _slurm() -> Capability:
    try:
        command_of("srun")
        command_of("sbatch")
        version = ask("sinfo", "--version").split()[-1]
        found = ask("sinfo", "--noheader", "--format=%R %D %t").split("\n")
    except LaunchError as failure:
        return Capability("slurm", False, str(failure).rstrip("."), failure.advice)
    partitions = sorted({line.split()[0] for line in found if line.strip()})
    if not partitions:
        return Capability("slurm", False, "Slurm has no partition for this user", "ask for one")
    said = f"Slurm {version} answers, with {', '.join(partitions[:8])}"
    return Capability("slurm", True, said)
