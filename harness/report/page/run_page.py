"""The page of a run: all its jobs, and a page of its own for each that was asked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from hanglab.analyzer.errors import InputError
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.run_folder import ArtifactsError, RunFolder
from hanglab.harness.jobs.stored_run import StoredJob, StoredRun, read_run
from hanglab.harness.report.output_file import check_target
from hanglab.harness.report.page.examined_job import load_job
from hanglab.harness.report.page.gathering import page_data
from hanglab.harness.report.page.job_pages import JobPages
from hanglab.harness.report.page.rendering import render_page, render_run_page, write_page


class RunRow(msgspec.Struct, kw_only=True):
    """A job in the table of its run; ``page`` and ``folder`` are links, "" without."""

    number: int
    scenario: str
    variant: str
    backend: str
    repetition: int
    outcome: str
    reason: str
    expected: str
    verdict: str
    culprits: list[int]
    headline: str
    advice: str
    seconds: float
    page: str = ""
    folder: str = ""
    path: str = ""


class RunPageData(msgspec.Struct, kw_only=True):
    """All that the page of a run shows, and what people can take out of it as JSON."""

    schema: Literal["hanglab.run-page/1"] = "hanglab.run-page/1"
    title: str
    version: str
    launcher: str
    outcomes: dict[str, int]
    jobs: list[RunRow]


def is_run(folder: Path) -> bool:
    """True of the folder of a run, which holds its results."""
    return RunFolder(folder).results.is_file()


def write_run_page(folder: Path, target: Path, pages: JobPages, *, force: bool) -> list[Path]:
    """Write the page of a run and those of its jobs, and give back what was written.

    Raises FileExists, ArtifactsError, MissingExtra and UnreadableResults.
    """
    results = read_run(RunFolder(folder).results).run
    beside = target.with_name(f"{target.stem}-jobs")
    check_target(target, force=force)
    chosen = [one for one in results.results if _has_page(one, pages)]
    if chosen:
        check_target(beside, force=force)
    rows = [
        _row(number, one, folder, results, target) for number, one in enumerate(results.results)
    ]
    written = []
    for row, one in zip(rows, results.results, strict=True):
        if one in chosen and row.path and Path(row.path).is_dir():
            page = beside / f"{_file_name(row)}.html"
            if _write_job(Path(row.path), page, force):
                row.page = _link(page, target)
                written.append(page)
    data = RunPageData(
        title=folder.resolve().name,
        version=version("hanglab"),
        launcher=results.launcher,
        outcomes=dict(Counter(row.outcome for row in rows)),
        jobs=rows,
    )
    write_page(render_run_page(data), target, force=force)
    return [target, *written]


def _has_page(result: StoredJob, pages: JobPages) -> bool:
    if result.artifacts is None or pages is JobPages.NONE:
        return False
    return pages is JobPages.ALL or result.outcome not in (Outcome.PASS, Outcome.SKIPPED)


def _row(number: int, result: StoredJob, folder: Path, results: StoredRun, target: Path) -> RunRow:
    verdict = result.verdict or {}
    path = results.artifacts_of(result, folder)
    return RunRow(
        number=number,
        scenario=result.scenario,
        variant=result.variant or "",
        backend=result.backend or "",
        repetition=result.repetition or 0,
        outcome=result.outcome.value,
        reason=result.reason,
        expected=_in_words(result.expected),
        verdict=_in_words(result.verdict),
        culprits=verdict.get("culprits") or [],
        headline=str(verdict.get("summary") or ""),
        advice=str(verdict.get("advice") or ""),
        seconds=round(result.seconds, 1),
        folder=f"{_link(path, target)}/" if path is not None else "",
        path=str(path) if path is not None else "",
    )


def _in_words(verdict: dict[str, Any] | None) -> str:
    return str((verdict or {}).get("cause") or (verdict or {}).get("status") or "")


def _file_name(row: RunRow) -> str:
    parts: Sequence[str] = (row.backend, row.scenario, row.variant, str(row.repetition))
    return "-".join(part for part in parts if part).replace("/", "_")


def _link(path: Path, target: Path) -> str:
    return quote(os.path.relpath(path, target.parent))


def _write_job(folder: Path, page: Path, force: bool) -> bool:
    """Write the page of one job; False where it left nothing that can be analysed."""
    try:
        job = load_job(folder)
    except InputError:
        return False
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ArtifactsError(f"{page.parent} cannot be created: {failure}") from failure
    write_page(render_page(page_data(job)), page, force=force)
    return True
