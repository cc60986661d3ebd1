"""Results of a run: what it starts with, the table at its end, failures and skips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hanglab.analyzer.verdict import Verdict
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.reproduction import command
from hanglab.harness.jobs.run import Result
from hanglab.harness.report.panel import rank_list
from hanglab.harness.scenarios.declaration import Expect

OUTCOME_STYLE = {
    Outcome.PASS: "green",
    Outcome.SKIPPED: "dim",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_REPRODUCED: "yellow",
    Outcome.WRONG_VERDICT: "red",
    Outcome.HARNESS_ERROR: "bold red",
}


def title(result: Result, with_backend: bool = False) -> str:
    request = result.request
    if request is None:
        return result.name
    again = f" #{request.repetition}" if request.repetition else ""
    where = f" on {request.backend}" if with_backend else ""
    return f"{result.name} {request.variant}{again}{where}"


def backends_among(results: Iterable[Result]) -> list[str]:
    """Backends of the jobs, in the order in which they come."""
    return list(dict.fromkeys(result.request.backend for result in results if result.request))


def results_table(results: Sequence[Result]) -> Table:
    """One row for each fault and one for each control that ran, over all repetitions."""
    several = len(backends_among(results)) > 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    backend = ["backend"] if several else []
    for column in ("scenario", *backend, "expected", "verdict", "culprits", "location"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    table.add_column("result")
    for rows in _by_row(without_skips(results)):
        name, *rest = _row(rows)
        request = rows[0].request
        where = [request.backend if request else ""] if several else []
        table.add_row(name, *where, *rest)
    return table


def _by_row(results: Iterable[Result]) -> list[list[Result]]:
    rows: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        request = result.request
        which = (request.variant, request.backend) if request else ()
        rows.setdefault((result.name, *which), []).append(result)
    return list(rows.values())


def _row(results: list[Result]) -> tuple[Text | str, ...]:
    """The row shows the worst of its repetitions."""
    worst = min(results, key=lambda result: list(OUTCOME_STYLE)[::-1].index(result.outcome))
    request = worst.request
    expect = request.scenario.expect if request else None
    healthy = request is not None and request.variant == "control"
    control = healthy and not (expect is not None and expect.is_healthy)
    verdict = worst.verdict
    seconds = sum(result.seconds for result in results) / len(results)
    passed = sum(result.outcome is Outcome.PASS for result in results)
    word = worst.outcome.value
    if len(results) > 1:
        word = f"{passed}/{len(results)} pass" + ("" if passed == len(results) else f", {word}")
    return (
        Text(f"  {worst.name}, control" if control else worst.name, style="dim" if control else ""),
        "healthy" if healthy else _expected(expect),
        (verdict.cause.value if verdict.cause else verdict.status.value) if verdict else "-",
        rank_list(verdict.culprits) if verdict else "-",
        _place(verdict) if verdict else "-",
        f"{seconds:.1f}" if worst.folder else "-",
        Text(word, style=OUTCOME_STYLE[worst.outcome]),
    )


def _expected(expect: Expect | None) -> str:
    if expect is None:
        return ""
    return expect.cause.value if expect.cause else str(expect.status_on("gloo").value)


def _place(verdict: Verdict) -> str:
    place = verdict.location
    return f"{place.file.rpartition('/')[2]}:{place.line}" if place else "-"


def print_failures(console: Console, results: Sequence[Result]) -> None:
    """Reasons of the jobs that did not pass, with the command that runs each again."""
    shown: set[str] = set()
    several = len(backends_among(results)) > 1
    for result in without_skips(results):
        if result.outcome is Outcome.PASS:
            continue
        style = OUTCOME_STYLE[result.outcome]
        console.print(
            f"[{style}]{result.outcome.value}[/]  [bold]{escape(title(result, several))}[/]  "
            f"{escape(result.judgement.reason)}"
        )
        if result.detail and result.detail not in shown:
            shown.add(result.detail)
            console.print(Text(result.detail.rstrip(), style="dim"))
        if result.folder is not None and result.request is not None:
            console.print(f"    artifacts  {escape(str(result.folder))}")
            console.print(f"    again      {escape(command(result.request))}")


def without_skips(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.outcome is not Outcome.SKIPPED]


def print_plan(console: Console, jobs: int, settled: Sequence[Result]) -> None:
    """The first line: how many jobs are to come, and how many scenarios are not among them."""
    skipped = sum(map(len, _skips(settled).values()))
    if skipped:
        words = f"{_number(jobs, 'job')}; {_number(skipped, 'scenario')} skipped"
        console.print(f"{words} (reasons at the end)")


def print_skips(console: Console, results: Sequence[Result]) -> None:
    """Each reason for which scenarios were skipped, once, with their number and names."""
    for reason, names in _skips(results).items():
        console.print(Text(f"{_number(len(names), 'scenario')} skipped: {reason}"))
        console.print(Text(f"    {', '.join(names)}", style="dim"))


def _skips(results: Iterable[Result]) -> dict[str, list[str]]:
    """Names of skipped scenarios by reason; a control is skipped with its fault."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        if result.outcome is Outcome.SKIPPED:
            found.setdefault(result.judgement.reason, {})[result.name] = None
    return {reason: list(names) for reason, names in found.items()}


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_summary(
    console: Console, results: Sequence[Result], seconds: float, folder: Path
) -> None:
    """The last lines: how many jobs came out how, in which time, and where all of it lies."""
    words = _counts(results)
    backends = backends_among(results)
    for backend in backends if len(backends) > 1 else ():
        own = [one for one in results if one.request and one.request.backend == backend]
        console.print(f"{backend}: {_number(len(own), 'job')}: {_counts(own)}")
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    jobs = _number(len(results), "job")
    console.print(f"{jobs} in {seconds:.0f} s: {words}; artifacts in {escape(str(shown))}")


def _counts(results: Iterable[Result]) -> str:
    """Number of jobs by outcome, in words."""
    counts = Counter(result.outcome for result in results)
    return ", ".join(
        f"{counts[outcome]} {outcome.value}" for outcome in OUTCOME_STYLE if counts[outcome]
    )
