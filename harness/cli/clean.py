"""``hanglab clean``: removes what ended jobs have left in Docker and in Slurm."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def clean(
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also what belongs to jobs that run now, or that were started elsewhere.",
        ),
    ] = False,
) -> int:
    """Remove containers, networks and jobs of Slurm whose hanglab has ended.

    Every run in containers does so before its first job. What was started on
    another machine, or in a container, cannot be told from what still runs:
    only --all removes it.
    """
    from hanglab.harness.launchers.docker.errors import MissingSdk, NoDaemon, NotAllowed

    removed = _clean_slurm(everything)
    try:
        removed = [*(removed or []), *_clean_docker(everything)]
    except (NoDaemon, NotAllowed, MissingSdk):
        if removed is None:
            raise
    for name in removed:
        print(f"removed {name}")
    if not removed:
        print("nothing is left of ended jobs")
    return 0


def _clean_slurm(everything: bool) -> list[str] | None:
    """Names of the jobs that were ended; None where there is no Slurm, or none that answers."""
    from hanglab.harness.launchers.slurm.errors import NoController, NoSlurm
    from hanglab.harness.launchers.slurm.submission import cancel, left_jobs

    try:
        jobs = left_jobs(everything)
    except NoSlurm:
        return None
    except NoController as error:
        # What is in Docker can be removed all the same.
        print(f"hanglab: {error}", file=sys.stderr)
        return None
    for job in jobs:
        cancel(job)
    return [f"job {job} of Slurm" for job in jobs]


def _clean_docker(everything: bool) -> list[str]:
    from hanglab.harness.launchers.docker.connection import connect
    from hanglab.harness.launchers.docker.reaping import reap

    client = connect()
    try:
        removed = reap(client, everything)
    finally:
        client.close()
    return [
        *(f"container {name}" for name in removed.containers),
        *(f"network {name}" for name in removed.networks),
    ]
