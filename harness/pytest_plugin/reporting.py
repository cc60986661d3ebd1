"""Reports of items: properties for JUnit, words for the terminal, the tally of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.plan import Options
from hanglab.harness.jobs.results import write_jobs
from hanglab.harness.jobs.run import Result, RunRequest, expectation
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.jobs.shard import Shard
from hanglab.harness.jobs.stored_run import StoredJob
from hanglab.harness.report import markdown
from hanglab.harness.report.markdown import JobRow
from hanglab.harness.report.rates import pass_rate

#: A letter and a word for each way to fail.
_WORDS = {
    Outcome.WRONG_VERDICT.value: ("W", "WRONG VERDICT"),
    Outcome.INCONCLUSIVE.value: ("I", "INCONCLUSIVE"),
    Outcome.NOT_REPRODUCED.value: ("N", "NOT REPRODUCED"),
    Outcome.HARNESS_ERROR.value: ("H", "HARNESS ERROR"),
}

Property = tuple[str, Any]
#: What pytest-rerunfailures makes of a failure that is tried again.
_TRIED_AGAIN = "rerun"
#: What ``results.json`` says of a job.
Entry = dict[str, Any]

_ENTRY = "hanglab_entry"


def asked_properties(request: RunRequest) -> list[Property]:
    """Known before the job runs; they become properties of the JUnit test case."""
    return [
        ("scenario", request.scenario.name),
        ("variant", request.variant),
        ("backend", request.backend),
        ("launcher", request.launcher),
        ("world_size", str(request.world_size)),
        ("seed", str(request.seed)),
        ("expected", _expected(request)),
    ]


def _expected(request: RunRequest) -> str:
    expected = expectation(request) or {}
    return " ".join(str(expected[key]) for key in ("status", "cause") if key in expected)


def result_properties(result: Result) -> list[Property]:
    verdict = result.verdict
    actual, culprits, confidence = "", "", ""
    if verdict is not None:
        cause = f" {verdict.cause.value}" if verdict.cause else ""
        actual = verdict.status.value + cause
        culprits = ",".join(map(str, verdict.culprits))
        confidence = f"{verdict.confidence:.2f}"
    return [
        ("actual", actual),
        ("culprits", culprits),
        ("confidence", confidence),
        ("outcome", result.outcome.value),
        ("reason", result.judgement.reason),
        ("artifacts", str(result.folder or "")),
    ]


def status_of(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    """Letter and word of a failed scenario; None for everything else."""
    if not isinstance(report, pytest.TestReport) or report.when != "call" or not report.failed:
        return None
    words = _WORDS.get(str(dict(report.user_properties).get("outcome")))
    return ("failed", *words) if words else None


def attach(report: pytest.TestReport, entry: Entry) -> None:
    """Sends what ``results.json`` says of an item along with its report, from workers, too."""
    report.__dict__[_ENTRY] = entry


class Tally:
    """All scenarios of a run as their reports come in."""

    def __init__(self, folder: Path, launcher: str | None, shard: Shard | None) -> None:
        """``launcher`` is the only one that was asked for."""
        self._folder = folder
        self._launcher = launcher
        self._shard = shard
        self.rows: list[JobRow] = []
        #: What ``results.json`` says, by backend, launcher and world size.
        self._entries: dict[tuple[str, str, str], list[Entry]] = {}
        #: Why the run's own files could not be written.
        self._problem = ""
        self._always = False
        #: Seconds by item, without its seed.
        self.durations: dict[str, float] = {}

    def add(self, report: pytest.TestReport) -> None:
        told = {name: str(value) for name, value in report.user_properties}
        if "scenario" not in told or "variant" not in told:
            return
        settled = report.when == "call" or (report.when == "setup" and not report.passed)
        if not settled or str(report.outcome) == _TRIED_AGAIN:
            return
        reason = told.get("reason", "")
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if report.when == "call":
            self.durations[report.nodeid.rsplit("-seed", 1)[0]] = round(report.duration, 3)
        self._count(told, report.__dict__.get(_ENTRY), reason, report.duration)

    def add_cut_short(self, properties: Sequence[Property], entry: Entry | None) -> None:
        """A job that Ctrl-C ended: it has no report."""
        told = {name: str(value) for name, value in properties}
        self._count(told, entry, told.get("reason", ""), (entry or {}).get("seconds", 0.0))

    def _count(
        self, told: Mapping[str, str], entry: Entry | None, reason: str, seconds: float
    ) -> None:
        if entry is not None:
            combination = told["backend"], told["launcher"], told["world_size"]
            self._entries.setdefault(combination, []).append(entry)
        self.rows.append(
            JobRow(
                scenario=told["scenario"],
                variant=told["variant"],
                where=f"{told['backend']}, {told['launcher']}, {told['world_size']} ranks",
                seed=told["seed"],
                expected=told["expected"],
                actual=told.get("actual", ""),
                culprits=told.get("culprits", ""),
                outcome=told.get("outcome", Outcome.HARNESS_ERROR.value),
                reason=reason,
                seconds=seconds,
                artifacts=told.get("artifacts", ""),
            )
        )

    def print_to(self, terminal: pytest.TerminalReporter) -> None:
        if not self.rows:
            return
        terminal.section("hanglab")
        terminal.write_line(markdown.counts(self.rows))
        for name, rows in markdown.repeated(self.rows).items():
            passed = sum(row.outcome == Outcome.PASS.value for row in rows)
            terminal.write_line(f"  {name}: {pass_rate(passed, len(rows))}")
        if self._problem:
            terminal.write_line(self._problem, red=True)
        elif self._has_folder:
            terminal.write_line(f"artifacts: {self._folder}")

    @property
    def _has_folder(self) -> bool:
        return self._always or any(row.artifacts for row in self.rows)

    def write(
        self, part: Callable[[str, str, str], RunFolder], *, always: bool, interrupted: bool
    ) -> None:
        """Writes ``results.json`` and ``summary.md``, and shows the latter on the job's page.

        A run without a job leaves them only with ``always``.  Never raises: the
        terminal is told.
        """
        self._always = always
        try:
            if self._has_folder:
                RunFolder(self._folder).begin()
                parts: dict[Path, tuple[RunFolder, Options, list[StoredJob]]] = {}
                for (backend, launcher, world_size), entries in self._entries.items():
                    # What needs containers shares a folder with what runs as was asked for.
                    options = Options(
                        backend=backend, launcher=self._launcher or launcher, shard=self._shard
                    )
                    folder = part(backend, launcher, world_size)
                    kept = parts.setdefault(folder.path, (folder, options, []))
                    kept[2].extend(msgspec.convert(entries, list[StoredJob]))
                for path, (folder, options, jobs) in parts.items():
                    path.mkdir(exist_ok=True)
                    write_jobs(folder, options, sorted(jobs, key=_place), interrupted=interrupted)
                (self._folder / "summary.md").write_text(markdown.markdown(self.rows))
            markdown.append_to_job_page(self.rows)
        except OSError as failure:
            self._problem = f"The run's results and summary were not written: {failure}"


def _place(job: StoredJob) -> tuple[str, int, bool]:
    return job.scenario, job.repetition or 0, job.variant == "control"
