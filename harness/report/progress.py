"""What people see of a run: progress while jobs run, and the table at the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.verdict import Verdict
from hanglab.harness.jobs.outcome import Outcome, describe
from hanglab.harness.jobs.reproduction import command
from hanglab.harness.jobs.run import Request, Result
from hanglab.harness.report.panel import rank_list

_STYLE = {
    Outcome.PASS: "green",
    Outcome.SKIPPED: "dim",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_REPRODUCED: "yellow",
    Outcome.WRONG_VERDICT: "red",
    Outcome.HARNESS_ERROR: "bold red",
}


class Progress:
    """Shows running jobs on a terminal; elsewhere a line for each that has ended."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._lock = threading.Lock()
        self._running: dict[Request, tuple[str, float]] = {}
        self._outcomes: Counter[Outcome] = Counter()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def shown(self) -> AbstractContextManager[object]:
        """Keeps the running jobs in sight while it is open, where there is a terminal."""
        return self._live if self._console.is_terminal else nullcontext()

    def phase(self, request: Request, phase: str) -> None:
        with self._lock:
            since = self._running.get(request, ("", time.monotonic()))[1]
            self._running[request] = (phase, since)

    def result(self, result: Result) -> None:
        with self._lock:
            if result.request is not None:
                self._running.pop(result.request, None)
            self._outcomes[result.outcome] += 1
            done = sum(self._outcomes.values())
        line = Text.assemble(
            (f"{done:>4}/{self._total}  ", "dim"),
            (f"{result.outcome.value:<15}", _STYLE[result.outcome]),
            f"{title(result):<34}",
            (f"{result.seconds:5.1f} s", "dim"),
            f"  {describe(result.verdict) if result.verdict else result.judgement.reason}",
        )
        self._console.print(line, no_wrap=True, overflow="ellipsis")

    def _render(self) -> Group:
        now = time.monotonic()
        with self._lock:
            running = list(self._running.items())
            outcomes = dict(self._outcomes)
        lines = [
            Text(f"      {request.title:<40} {phase} {now - since:.0f} s", style="cyan")
            for request, (phase, since) in running
        ]
        counts = ", ".join(f"{count} {outcome.value}" for outcome, count in outcomes.items())
        done = sum(outcomes.values())
        return Group(*lines, Text(f"{done} of {self._total} jobs  {counts}", style="bold"))


def title(result: Result) -> str:
    request = result.request
    if request is None:
        return result.name
    again = f" #{request.repetition}" if request.repetition else ""
    return f"{result.name} {request.variant}{again}"


def results_table(results: Sequence[Result]) -> Table:
    """One row for a scenario's fault and one for its control, over all repetitions."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("scenario", "expected", "verdict", "culprits", "location"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    table.add_column("result")
    for rows in _by_row(results):
        table.add_row(*_row(rows))
    return table


def _by_row(results: Iterable[Result]) -> list[list[Result]]:
    rows: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        variant = result.request.variant if result.request else ""
        rows.setdefault((result.name, variant), []).append(result)
    return list(rows.values())


def _row(results: list[Result]) -> tuple[Text | str, ...]:
    """The row shows the worst of its repetitions."""
    worst = min(results, key=lambda result: list(_STYLE)[::-1].index(result.outcome))
    request = worst.request
    control = request is not None and request.variant == "control"
    verdict = worst.verdict
    expect = request.scenario.expect if request else None
    seconds = sum(result.seconds for result in results) / len(results)
    passed = sum(result.outcome is Outcome.PASS for result in results)
    word = worst.outcome.value
    if len(results) > 1 and worst.outcome is not Outcome.SKIPPED:
        word = f"{passed}/{len(results)} pass" + ("" if passed == len(results) else f", {word}")
    return (
        Text(f"  {worst.name}, control" if control else worst.name, style="dim" if control else ""),
        "healthy" if control else (expect.cause.value if expect else ""),
        (verdict.cause.value if verdict.cause else verdict.status.value) if verdict else "-",
        rank_list(verdict.culprits) if verdict else "-",
        _place(verdict) if verdict else "-",
        f"{seconds:.1f}" if worst.folder else "-",
        Text(word, style=_STYLE[worst.outcome]),
    )


def _place(verdict: Verdict) -> str:
    place = verdict.location
    return f"{place.file.rpartition('/')[2]}:{place.line}" if place else "-"


def print_failures(console: Console, results: Sequence[Result]) -> None:
    """What went wrong in each job that did not pass, and how to run it again."""
    shown: set[str] = set()
    for result in results:
        if result.outcome is Outcome.PASS:
            continue
        style = _STYLE[result.outcome]
        console.print(
            f"[{style}]{result.outcome.value}[/]  [bold]{escape(title(result))}[/]  "
            f"{escape(result.judgement.reason)}"
        )
        if result.outcome is Outcome.SKIPPED:
            continue
        if result.detail and result.detail not in shown:
            shown.add(result.detail)
            console.print(Text(result.detail.rstrip(), style="dim"))
        if result.folder is not None and result.request is not None:
            console.print(f"    artifacts  {escape(str(result.folder))}")
            console.print(f"    again      {escape(command(result.request))}")


def print_summary(
    console: Console, results: Sequence[Result], seconds: float, folder: Path
) -> None:
    """The last lines: how many jobs came out how, in which time, and where all of it lies."""
    counts = Counter(result.outcome for result in results)
    words = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in _STYLE if counts[outcome])
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    jobs = "1 job" if len(results) == 1 else f"{len(results)} jobs"
    console.print(f"{jobs} in {seconds:.0f} s: {words}; artifacts in {escape(str(shown))}")
