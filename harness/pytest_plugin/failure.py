"""Texts of failed items: expected beside actual, the evidence, the way to repeat the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hanglab.analyzer.verdict import Verdict
from hanglab.harness.jobs.outcome import Outcome, expected_location
from hanglab.harness.jobs.reproduction import command
from hanglab.harness.jobs.run import Result, RunRequest

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

#: Rows of a verdict, each with what was expected and what came.
ComparedRow = tuple[str, str, str]
#: Lines of evidence that are shown; all of it is in the artifacts.
_EVIDENCE = 12
_DETAIL = 3000


class OutcomeFailure(Exception):
    """A job did not come out as its scenario says."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.outcome.value}: {result.judgement.reason}")
        self.result = result


def representation(
    excinfo: pytest.ExceptionInfo[BaseException], text: str, source: Path, line: int
) -> TerminalRepr:
    """``text`` for the report, its first line for summaries and JUnit, ``source`` as the place.

    Given a bare string, pytest repeats all of it in its summary wherever it runs on CI.
    """
    lines = text.splitlines()
    shown = excinfo.getrepr(style="value", chain=False)
    (entry,) = shown.reprtraceback.reprentries
    entry.lines = lines
    if shown.reprcrash is not None:
        shown.reprcrash.path, shown.reprcrash.lineno = str(source), line
        shown.reprcrash.message = lines[0]
    return shown


def describe_failure(result: Result) -> str:
    """Expected against actual, the evidence, the artifacts, and how to repeat it."""
    request = result.request
    assert request is not None
    lines = [f"{result.outcome.value}: {result.judgement.reason}", ""]
    if result.outcome is not Outcome.HARNESS_ERROR or result.verdict is not None:
        lines += side_by_side(expected_rows(request, result.verdict))
        lines += evidence_lines(result.verdict)
    if result.detail:
        lines += ["", result.detail.strip()[-_DETAIL:]]
    lines.append("")
    if result.folder is not None:
        lines.append(f"artifacts  {result.folder}")
    lines.append(f"again      {command(request)}")
    return "\n".join(lines)


def expected_rows(request: RunRequest, verdict: Verdict | None) -> list[ComparedRow]:
    """Fields that the scenario expects of its verdict, beside those that it got."""
    expect = request.scenario.expect
    assert expect is not None
    control = request.variant == "control"
    actual = actual_of(verdict)
    expected = {"status": "healthy", "cause": "-", "culprits": "-", "location": "-"}
    if not control:
        expected = {
            "status": expect.status_on(request.backend).value,
            "cause": expect.cause.value if expect.cause else "-",
            "culprits": ranks(expect.culprits_of(request.world_size)),
            "location": expected_location(request.scenario) or "-",
        }
        if expect.group is not None:
            expected["group"] = expect.group
    return [(name, value, actual[name]) for name, value in expected.items()]


def actual_of(verdict: Verdict | None) -> dict[str, str]:
    """A verdict in short words, by the names of its fields."""
    if verdict is None:
        return dict.fromkeys(("status", "cause", "culprits", "location", "group"), "no verdict")
    place, call = verdict.location, verdict.collective
    return {
        "status": verdict.status.value,
        "cause": verdict.cause.value if verdict.cause else "-",
        "culprits": ranks(verdict.culprits),
        "location": f"{place.file.rpartition('/')[2]}:{place.line}" if place else "-",
        "group": (call.group or call.group_id) if call else "-",
    }


def ranks(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "-"


def side_by_side(rows: Sequence[ComparedRow]) -> list[str]:
    """Three columns; rows that differ are marked."""
    width = max([len("expected"), *(len(expected) for _, expected, _ in rows)])
    lines = [f"  {'':<12}{'expected':<{width}}   actual"]
    for name, expected, actual in rows:
        mark = " " if fits(expected, actual) else ">"
        lines.append(f"{mark} {name:<12}{expected:<{width}}   {actual}")
    return lines


def fits(expected: str, actual: str) -> bool:
    """True if they say the same; of several marked lines, ``f.py:3 or 7``, one will do."""
    if expected == actual:
        return True
    file, _, lines = expected.rpartition(":")
    return bool(file) and actual in {f"{file}:{line}" for line in lines.split(" or ")}


def evidence_lines(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return []
    lines = ["", f"{verdict.summary} (confidence {verdict.confidence:.2f})"]
    for item in verdict.evidence[:_EVIDENCE]:
        rank = "" if item.rank is None else f"rank {item.rank}: "
        lines.append(f"  {item.source}: {rank}{item.detail}")
    more = len(verdict.evidence) - _EVIDENCE
    if more > 0:
        lines.append(f"  and {more} more in verdict.json")
    return lines
