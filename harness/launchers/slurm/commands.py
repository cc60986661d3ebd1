"""Slurm's own commands: found, asked, and their errors in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.slurm.errors import NoController, NoSlurm, NotSubmitted

#: For a controller that is busy; Slurm's own limit for a message is 10 s, tried several times.
_ANSWER_S = 60.0
_AWAY = re.compile(
    r"unable to contact slurm controller|could not establish a configuration source"
    r"|connection refused|unable to establish (control|controller)|unable to connect|munge",
    re.IGNORECASE,
)
#: Lines that say only that something has ended, and what Slurm puts before all others.
_EXITED = re.compile(r"Exited with exit code|Terminated|Job step aborted|Force Terminated")
_PREFIX = re.compile(r"^(srun|slurmstepd[^:]*): (error: )?")
#: What Slurm sets in its own jobs: to an srun or sbatch of ours it would be options.
_INHERITED = ("SLURM_", "SLURMD_", "PMI_", "PMIX_")


def command_of(name: str) -> str:
    """Path of a command.  Raises NoSlurm."""
    found = shutil.which(name)
    if found is None:
        raise NoSlurm(f"Slurm's command {name} is not installed here.")
    return found


def ask(name: str, *options: str, environment: Mapping[str, str] | None = None) -> str:
    """Output of a command.  Raises NoSlurm, NoController, and LaunchError with its own words."""
    try:
        done = subprocess.run(
            [command_of(name), *options],
            env=own_environment() if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoController(f"{name} has not answered for {_ANSWER_S:g} s.") from None
    except OSError as error:
        raise NoSlurm(f"{name} cannot be run: {error.strerror}.") from error
    if done.returncode == 0:
        return done.stdout
    words = said(done.stderr, name) or f"{name} ended with code {done.returncode}"
    if _AWAY.search(done.stderr):
        raise NoController(f"Slurm's controller cannot be asked: {words}.")
    raise (NotSubmitted if name == "sbatch" else LaunchError)(f"{name} says: {words}.")


def said(stderr: str, name: str) -> str:
    """The last complaint of a command, without what it puts before it."""
    prefix = re.compile(rf"^{name}: (?:error|fatal): ")
    lines = [line.strip() for line in stderr.splitlines()]
    errors = [prefix.sub("", line) for line in lines if prefix.match(line)]
    words = [line for line in errors if "Batch job submission failed" not in line] or errors
    return (words[0] if words else (lines[-1] if lines else "")).rstrip(".")


def step_command(job: str, node: str, words: Sequence[str]) -> list[str]:
    """A command that runs another as a step of a job, on one of its nodes.

    Its input and output are the other's.  Raises NoSlurm.
    """
    options = ["--jobid", job, "--nodelist", node, "--nodes=1", "--ntasks=1", "--overlap"]
    options += ["--unbuffered", "--export=ALL", "--job-name=hanglab-node", "--input=all"]
    return [command_of("srun"), *options, *words]


def said_by_step(stderr: bytes) -> str:
    """The last that such a command, or what ran there, said of an error."""
    lines = [line.strip() for line in stderr[-4096:].decode(errors="replace").splitlines()]
    told = [line for line in lines if line and not _EXITED.search(line)]
    return _PREFIX.sub("", told[-1]).rstrip(".") if told else ""


def own_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without what a job around hanglab would tell commands of Slurm."""
    source: Mapping[str, str] = os.environ if variables is None else variables
    return {
        name: value
        for name, value in source.items()
        if name == "SLURM_CONF" or not name.startswith(_INHERITED)
    }
