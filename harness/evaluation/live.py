"""Scenarios run for an evaluation: their Cases, with what each scenario declares as the truth."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hanglab.harness import capabilities
from hanglab.harness.errors import MissingExtra
from hanglab.harness.evaluation.cases import (
    REPRODUCED,
    CaseSet,
    LabelledCase,
    StoredCase,
    truths_of,
)
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.plan import Options, plan
from hanglab.harness.jobs.results import write_results
from hanglab.harness.jobs.run import Result, expectation
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.jobs.running import run_all
from hanglab.harness.launchers.selection import Launchers
from hanglab.harness.report import results as report
from hanglab.harness.report.progress import RunProgress
from hanglab.harness.scenarios import discovery


def run_scenarios(
    names: Sequence[str], jobs: int, root: Path, console: Console, stop: threading.Event
) -> CaseSet:
    """Run scenarios with their controls, and take the Cases of those that showed their fault.

    Raises MissingExtra without torch, and UsageError for a scenario that does not exist.
    """
    torch = capabilities.capability("torch")
    if not torch.available:
        raise MissingExtra("`hanglab eval --live` needs torch.", torch.remedy)
    options = Options(jobs=jobs)
    requests, settled = plan(discovery.select(names), options)
    folder = RunFolder.create(root.absolute())
    report.print_plan(console, len(requests), settled)
    progress = RunProgress(console, requests)
    with progress.shown():
        launchers = Launchers()
        try:
            results = run_all(requests, folder, launchers, jobs, stop, progress)
        finally:
            launchers.close()
    write_results(folder, options, [*settled, *results], interrupted=stop.is_set())
    found = CaseSet()
    for result in [*settled, *results]:
        _take(found, result)
    return found


def _take(found: CaseSet, result: Result) -> None:
    request = result.request
    if result.outcome is Outcome.SKIPPED:
        return
    name = "live/" + (
        result.name if request is None else f"{result.name}.{request.variant}.{request.repetition}"
    )
    expected = expectation(request) if request is not None else None
    if result.outcome.value not in REPRODUCED or result.folder is None or expected is None:
        found.broken[name] = f"{result.outcome.value}: {result.judgement.reason}."
        return
    source = StoredCase((result.folder / "case").resolve())
    found.cases.append(LabelledCase(name, truths_of(expected), source))
