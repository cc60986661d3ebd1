"""``hanglab watch``: a service that finds jobs, learns their pace, and captures those that stop."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Literal

import typer

from hanglab.harness.cli.number_checks import finite


def watch(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder of the Cases; without it /var/lib/hanglab/cases for root, for others "
            "~/.local/state/hanglab/cases.",
        ),
    ] = None,
    then: Annotated[
        Literal["kill", "leave"],
        typer.Option(help="What to do with a job that hangs, once it has been captured."),
    ] = "leave",
    least: Annotated[
        float,
        typer.Option(
            min=1.0,
            callback=finite,
            metavar="SECONDS",
            help="No pause in which nobody computes is unusual that is shorter; other limits are "
            "in proportion.",
        ),
    ] = 120.0,
    below: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="PID",
            help="Watch only jobs below this process, such as a container's first one.",
        ),
    ] = None,
) -> int:
    """Watch the jobs of this host: learn the pace of each, and capture those that stop.

    Jobs are found among the processes that this user may look into (root: all),
    whether hanglab records them or not, and go on untouched. One that makes a
    pause as it has made none so far is captured into a Case, and judged. Runs
    until Ctrl-C or SIGTERM.
    """
    from hanglab.harness.watching.pace import PaceLimits
    from hanglab.harness.watching.places import state_folder
    from hanglab.harness.watching.service import WatchService, WatchSettings

    limits = PaceLimits()
    if least != limits.still_s:
        limits = limits.scaled(least)
    folder = (out or state_folder() / "cases").absolute()
    settings = WatchSettings(folder, limits, end_jobs=then == "kill", below=below)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    service = WatchService(settings, lambda event: _say(event.summary), _say)
    _say(f"watching this host's jobs; Cases go below {folder}")
    service.run(stop.is_set)
    return 0


def _say(text: str) -> None:
    print(f"hanglab: {text}", file=sys.stderr, flush=True)
