"""A run in Markdown, for the page that a CI system shows of a job."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.report.rates import pass_rate

#: The page of a GitHub job takes 1 MiB; the rest stays in the artifacts.
_MOST_BYTES = 900_000


@dataclass(frozen=True)
class JobRow:
    """One job."""

    scenario: str
    variant: str
    #: Backend, launcher and ranks in words.
    where: str
    seed: str
    expected: str
    actual: str
    culprits: str
    outcome: str
    reason: str
    seconds: float
    artifacts: str


def counts(rows: Sequence[JobRow]) -> str:
    """Number of jobs by outcome, in words."""
    found = Counter(row.outcome for row in rows)
    words = [f"{found[kind.value]} {kind.value}" for kind in Outcome if found[kind.value]]
    return f"{'1 job' if len(rows) == 1 else f'{len(rows)} jobs'}: {', '.join(words)}"


def repeated(rows: Iterable[JobRow]) -> dict[str, list[JobRow]]:
    """Jobs that ran more than once, by name; skipped ones ran not at all."""
    groups: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.outcome != Outcome.SKIPPED.value:
            groups.setdefault(f"{row.scenario} {row.variant} ({row.where})", []).append(row)
    return {name: group for name, group in groups.items() if len(group) > 1}


def markdown(rows: Sequence[JobRow]) -> str:
    """The run as a page: first what did not pass, then all jobs, then what was skipped."""
    ran = [row for row in rows if row.outcome != Outcome.SKIPPED.value]
    bad = [row for row in ran if row.outcome != Outcome.PASS.value]
    skipped = [row for row in rows if row.outcome == Outcome.SKIPPED.value]
    lines = [f"## hanglab: {counts(rows)}", ""]
    if bad:
        lines += ["| did not pass | expected | actual | why | seed |", "|---|---|---|---|---|"]
        lines += [
            _line(_name(row), row.expected, row.actual, f"{row.outcome}: {row.reason}", row.seed)
            for row in bad
        ]
        lines.append("")
    rates = repeated(rows)
    if rates:
        lines += ["| repeated | pass rate |", "|---|---|"]
        for name, group in rates.items():
            passed = sum(row.outcome == Outcome.PASS.value for row in group)
            lines.append(_line(name, pass_rate(passed, len(group))))
        lines.append("")
    if ran:
        lines += ["<details><summary>All jobs</summary>", ""]
        lines += ["| job | verdict | culprits | seconds | outcome |", "|---|---|---|---:|---|"]
        lines += [
            _line(_name(row), row.actual, row.culprits, f"{row.seconds:.1f}", row.outcome)
            for row in ran
        ]
        lines += ["", "</details>", ""]
    if skipped:
        lines += [f"<details><summary>{len(skipped)} skipped</summary>", ""]
        for reason, number in Counter(row.reason for row in skipped).most_common():
            lines.append(f"- {number}: {_cell(reason)}")
        lines += ["", "</details>", ""]
    return "\n".join(lines)


def append_to_job_page(rows: Sequence[JobRow]) -> None:
    """Shows the run on the page of a GitHub job, whose file GITHUB_STEP_SUMMARY names.

    Raises OSError.
    """
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        text = markdown(rows).encode()[:_MOST_BYTES].decode(errors="ignore")
        with Path(page).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def _name(row: JobRow) -> str:
    return f"{row.scenario}, {row.variant} ({row.where})"


def _line(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """One line, and nothing in it that ends the cell or is taken for markup."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return plain.replace("<", "&lt;").replace("`", "\\`")
