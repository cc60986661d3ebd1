"""Handing a job to Slurm: an allocation whose batch script ends once nobody needs it any more."""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path

from hanglab.harness.launchers import owners, protocol
from hanglab.harness.launchers.protocol import JobPlan
from hanglab.harness.launchers.slurm.commands import ask

#: What the comment of hanglab's jobs begins with; the owner and the run's folder follow.
COMMENT = "hanglab"
#: Name of the batch script in the job's folder.
KEEPER = "slurm-keeper.sh"
#: For nodes to start their ranks, besides the job's own time.
_START_S = 120.0
#: Seconds without a sign of life of hanglab after which the job is given back.
SILENCE_S = 30

#: Whatever ends hanglab, also while the job waits: a beat that stands still ends the allocation.
#: Asked to end by Slurm alone it stays, so that the nodes can still capture.
_SCRIPT = """#!/bin/sh
beat={beat}
trap '[ -e "$beat" ] || exit 0' TERM
still=0
while [ -e "$beat" ] && [ "$still" -lt {silence} ]; do
    sleep 1
    now=$(cat "$beat" 2> /dev/null)
    if [ "$now" = "$last" ]; then still=$((still + 1)); else still=0; fi
    last=$now
done
"""


def submit(plan: JobPlan, nodes: int, tasks: int, beat: Path) -> str:
    """Number of a job with ``nodes`` nodes for up to ``tasks`` ranks each.

    ``beat`` is a file that changes as long as the job is needed.  Raises LaunchError.
    """
    seconds = plan.deadline_s + protocol.GRACE_S + _START_S
    scenario = plan.function or plan.script.stem
    options = {
        "job-name": f"hanglab-{scenario}"[:60],
        "comment": f"{COMMENT} {owners.identity(os.getpid())} {plan.run_dir}",
        "nodes": str(nodes),
        # Of what nodes need not have, such as tasks for each rank, nothing is asked.
        "ntasks-per-node": str(tasks),
        "output": os.path.abspath(plan.log_dir / "slurm.out"),
        "chdir": os.path.abspath(plan.run_dir),
        "export": "NONE",
    }
    if "SBATCH_TIMELIMIT" not in os.environ:
        options["time"] = str(math.ceil(seconds / 60))
    script = plan.run_dir / KEEPER
    script.write_text(_SCRIPT.format(silence=SILENCE_S, beat=shlex.quote(os.path.abspath(beat))))
    words = [f"--{name}={value}" for name, value in options.items()]
    return ask("sbatch", "--parsable", "--no-requeue", *words, str(script)).strip().split(";")[0]


def cancel(job: str) -> None:
    """Ends a job and everything in it; nothing where it has ended.  Raises LaunchError.

    The batch script takes the time that Slurm leaves to all, unless its beat is gone.
    """
    ask("scancel", "--full", job)


def left_jobs(everything: bool) -> list[str]:
    """Numbers of this user's jobs whose hanglab has ended; ``everything``: of any hanglab.

    Raises LaunchError.
    """
    found = []
    for line in ask("squeue", "--noheader", "--me", "--format=%A %k").splitlines():
        job, _, comment = line.strip().partition(" ")
        word, _, rest = comment.partition(" ")
        dead = owners.is_dead({owners.OWNER: rest.partition(" ")[0]})
        if word == COMMENT and (dead or everything):
            found.append(job)
    return found
