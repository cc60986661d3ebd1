"""``hanglab clean``: removes what ended jobs have left in Docker."""

from __future__ import annotations

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
    """Remove containers and networks of jobs whose hanglab has ended.

    Every run in containers does so before its first job. What was started on
    another machine, or in a container, cannot be told from what still runs:
    only --all removes it.
    """
    from hanglab.harness.launchers.docker.connection import connect
    from hanglab.harness.launchers.docker.reaping import reap

    client = connect()
    try:
        removed = reap(client, everything)
    finally:
        client.close()
    for name in removed.containers:
        print(f"removed container {name}")
    for name in removed.networks:
        print(f"removed network {name}")
    if not removed.containers and not removed.networks:
        print("nothing is left of ended jobs")
    return 0
