"""``hanglab clean``: removes what ended jobs have left in Docker, Slurm and Kubernetes."""

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
    """Remove containers, networks, jobs of Slurm and pods whose hanglab has ended.

    Every run in containers does so before its first job. What was started on
    another machine, or in a container, cannot be told from what still runs:
    only --all removes it.
    """
    from hanglab.harness.launchers.docker.errors import MissingSdk, NoDaemon, NotAllowed

    found = [one for one in (_clean_slurm(everything), _clean_pods(everything)) if one is not None]
    removed = [name for names in found for name in names]
    try:
        removed += _clean_docker(everything)
    except (NoDaemon, NotAllowed, MissingSdk):
        if not found:
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


def _clean_pods(everything: bool) -> list[str] | None:
    """Names of the pods that were removed; None where there is no cluster, or none to ask."""
    from hanglab.harness.errors import HanglabError
    from hanglab.harness.kubernetes.connection import connect
    from hanglab.harness.kubernetes.errors import KubernetesError
    from hanglab.harness.launchers.kubernetes.pods import left_pods, remove

    try:
        cluster = connect()
    except HanglabError:
        return None
    try:
        pods = left_pods(cluster, everything)
        for name in pods:
            remove(cluster, name)
    except KubernetesError as error:
        # What is elsewhere can be removed all the same.
        print(f"hanglab: {error}", file=sys.stderr)
        return None
    return [f"pod {name}" for name in pods]


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
