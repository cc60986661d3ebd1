"""``hanglab live``: a job that is being recorded, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

#: Seconds between two looks.
_LOOK_S = 0.5


def live(
    target: Annotated[
        str,
        typer.Argument(
            metavar="CASE|PID",
            help="The Case into which the job is being recorded, or a process of the job: its "
            "launcher, a rank, or one above or below.",
        ),
    ],
) -> int:
    """Show a recorded job while it runs: its ranks, their steps, who waits for whom, since when.

    It reads what the recorder writes and touches nothing of the job: Ctrl-C
    leaves, and the job goes on. Once the job hangs, or ends, the verdict is
    printed. Where the output is no terminal, each change is a line.

    Exits as `hanglab analyze`; 130 after Ctrl-C.
    """
    import os

    from hanglab.harness.cli.analyze import analyze_and_show
    from hanglab.harness.recording.recorded_jobs import case_to_watch

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    case = case_to_watch(target)
    _watch(case)
    return analyze_and_show(case, as_json=False)


def _watch(case: Path) -> None:
    """Shows the job until it hangs or ends."""
    import contextlib
    import time

    from rich.live import Live

    from hanglab.harness.recording.recorded_jobs import is_over
    from hanglab.harness.report.live.lines import ChangeLines
    from hanglab.harness.report.live.ranks_at_work import JobAtWork
    from hanglab.harness.report.live.screen import JobPace, situation_screen
    from hanglab.harness.report.live.situation import rows
    from hanglab.harness.report.live.standing import Standings
    from hanglab.harness.report.panel import make_console

    console = make_console()
    pace, standings, lines = JobPace(), Standings(case), ChangeLines()
    screen = Live(console=console, auto_refresh=False, transient=True)
    shown = screen if console.is_terminal else contextlib.nullcontext()
    with contextlib.closing(JobAtWork(case)) as job, shown:
        while True:
            job.look()
            if is_over(job):
                return
            now = time.monotonic()
            pace.note(job.ranks, now)
            situation = rows(job.ranks, standings.of(job))
            if console.is_terminal:
                screen.update(
                    situation_screen(console, case, job.ranks, situation, pace), refresh=True
                )
            else:
                for line in lines.new(job.ranks, situation, pace, now):
                    print(line, flush=True)
            time.sleep(_LOOK_S)
