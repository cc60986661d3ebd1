"""Progress of a minimisation: what is left of the job, what is tried, and what runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from hanglab.harness.jobs.outcome import describe
from hanglab.harness.jobs.run import Result, RunRequest


class MinimisationProgress:
    """A bar that fills as calls are left out, on a terminal; a line for each real run."""

    def __init__(self, console: Console, calls: int) -> None:
        self._console = console
        self._bar = rich.progress.Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,} of {task.total:,} calls left out"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._calls = calls
        self._simulated = 0
        self._task = self._bar.add_task("simulating", total=calls)

    def shown(self) -> AbstractContextManager[object]:
        """Keeps the bar in sight while it is open, where there is a terminal."""
        return self._bar if self._console.is_terminal else nullcontext()

    def tried(self, what: str, calls: int) -> None:
        """Say that fewer or other ``what`` are tried, and how many calls that leaves."""
        self._simulated += 1
        done = self._bar.tasks[0].completed
        self._bar.update(
            self._task,
            description=f"fewer {what}: {self._simulated:,} simulated",
            completed=max(done, self._calls - calls),
        )

    def phase(self, request: RunRequest, phase: str) -> None:
        self._bar.update(self._task, description=f"{request.title}: {phase}")

    def result(self, result: Result) -> None:
        request, told = result.request, result.judgement.reason
        assert request is not None, "what cannot run is no job"
        if result.verdict is not None:
            told = describe(result.verdict)
        self._console.print(
            f"{request.title} on {request.world_size} ranks, {result.seconds:.1f} s: {told}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
