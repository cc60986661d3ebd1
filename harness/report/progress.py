"""Progress of a run while its jobs run."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import rich.progress
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from hanglab.harness.jobs.outcome import Outcome, describe
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.report.results import OUTCOME_STYLE, title
from hanglab.harness.scenarios.durations import expected_seconds

Item = TypeVar("Item")


def progress_of(console: Console, what: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """The items, with a bar and the time left where there is a terminal."""
    bar = rich.progress.Progress(
        TextColumn("{task.completed} of {task.total} " + what),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        yield from bar.track(items, total=total)


class RunProgress:
    """Running jobs, a bar and the time left on a terminal; elsewhere a line for each ended job."""

    def __init__(self, console: Console, requests: Sequence[RunRequest]) -> None:
        self._console = console
        self._total = len(requests)
        self._ended = 0
        self._several = len({request.backend for request in requests}) > 1
        self._lock = threading.Lock()
        self._running: dict[RunRequest, TaskID] = {}
        self._jobs = rich.progress.Progress(
            TextColumn("      {task.description:<40}", style="cyan", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[phase]}", style="dim", markup=False),
        )
        # Jobs weigh what they take, so that the time left is not told by the short ones.
        self._bar = rich.progress.Progress(
            TextColumn("{task.fields[ended]} of {task.fields[jobs]} jobs", style="bold"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        seconds = sum(expected_seconds(request.scenario) for request in requests)
        self._all = self._bar.add_task("", total=seconds, ended=0, jobs=self._total)
        self._live = Live(
            Group(self._jobs, self._bar), console=console, refresh_per_second=4, transient=True
        )

    def shown(self) -> AbstractContextManager[object]:
        """Keeps the running jobs in sight while it is open, where there is a terminal."""
        return self._live if self._console.is_terminal else nullcontext()

    def phase(self, request: RunRequest, phase: str) -> None:
        with self._lock:
            if request not in self._running:
                where = f" on {request.backend}" if self._several else ""
                self._running[request] = self._jobs.add_task(request.title + where, phase=phase)
            self._jobs.update(self._running[request], phase=phase)

    def word(self, result: Result) -> str:
        """The outcome in a word or two; of what declares no verdict, that it was not judged."""
        request = result.request
        judged = request is None or request.scenario.expect is not None
        passed = result.outcome is Outcome.PASS
        return result.outcome.value if judged or not passed else "not judged"

    def result(self, result: Result) -> None:
        request = result.request
        assert request is not None, "what cannot run is no job"
        with self._lock:
            if request in self._running:
                self._jobs.remove_task(self._running.pop(request))
            self._ended += 1
            ended = self._ended
            self._bar.update(self._all, advance=expected_seconds(request.scenario), ended=ended)
        line = Text.assemble(
            (f"{ended:>4}/{self._total}  ", "dim"),
            (f"{self.word(result):<15}", OUTCOME_STYLE[result.outcome]),
            f"{title(result, self._several):<34}",
            (f"{result.seconds:5.1f} s", "dim"),
            f"  {describe(result.verdict) if result.verdict else result.judgement.reason}",
        )
        self._console.print(line, no_wrap=True, overflow="ellipsis")
