"""Progress of a run on a terminal and in a log."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from hanglab.harness.jobs.outcome import Judgement, Outcome
from hanglab.harness.jobs.plan import Options, requests_of
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.report.progress import RunProgress
from hanglab.harness.report.results import print_plan, print_skips
from hanglab.harness.scenarios import discovery


def requests() -> list[RunRequest]:
    return requests_of(discovery.select(["crash"]).scenarios[0], Options())


def ended(request: RunRequest, seconds: float = 2.0) -> Result:
    return Result(request.scenario.name, request, Judgement(Outcome.PASS), seconds=seconds)


def test_a_terminal_shows_running_jobs_a_bar_and_the_time_left() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100, color_system=None)
    first, second, third = [*requests(), *requests()][:3]
    progress = RunProgress(console, [first, second, third])
    with progress.shown():
        for request in (first, second, third):
            progress.phase(request, "starting")
        progress.result(ended(first))
        progress.result(ended(second))
        progress.phase(third, "analyzing")
    lines = written.getvalue().splitlines()
    assert any("1/3" in line and "pass" in line and "crash fault" in line for line in lines)
    assert any("crash fault 0" in line and "analyzing" in line for line in lines)
    assert any(re.search(r"2 of 3 jobs ━+╸? +\d:\d\d:\d\d left", line) for line in lines)


def test_a_log_gets_one_line_for_each_job() -> None:
    written = io.StringIO()
    fault, control = requests()
    progress = RunProgress(Console(file=written, width=150), [fault, control])
    with progress.shown():
        for request in (fault, control):
            progress.phase(request, "running")
            progress.result(ended(request))
    lines = written.getvalue().splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["1/2", "pass", "crash", "fault"],
        ["2/2", "pass", "crash", "control"],
    ]


def test_what_declares_no_verdict_is_not_said_to_pass() -> None:
    """As a plain script, whose verdict may be anything; that it failed to run is told."""
    written = io.StringIO()
    fault, control = (
        replace(one, scenario=replace(one.scenario, expect=None)) for one in requests()
    )
    progress = RunProgress(Console(file=written, width=150), [fault, control])
    progress.result(ended(fault))
    failed = Judgement(Outcome.HARNESS_ERROR, "no rank started")
    progress.result(Result(control.scenario.name, control, failed))
    first, second = written.getvalue().splitlines()
    assert "not judged" in first and "pass" not in first
    assert "harness error" in second


def test_a_job_that_never_got_a_phase_is_counted() -> None:
    written = io.StringIO()
    fault, _ = requests()
    RunProgress(Console(file=written, width=150), [fault]).result(ended(fault))
    assert "1/1" in written.getvalue()


def test_each_reason_of_skips_is_told_once_with_its_number() -> None:
    reasons = {"needs docker: none [here]": ["crash", "exception"], "needs gpu": ["teardown"]}
    skips = [
        Result(name, request, Judgement(Outcome.SKIPPED, reason))
        for reason, names in reasons.items()
        for name in names
        for request in requests_of(discovery.select([name]).scenarios[0], Options())
    ]
    written = io.StringIO()
    console = Console(file=written, width=150)
    print_plan(console, 100, skips)
    print_skips(console, [*skips, ended(requests()[0])])
    assert written.getvalue().splitlines() == [
        "100 jobs; 3 scenarios skipped (reasons at the end)",
        "2 scenarios skipped: needs docker: none [here]",
        "    crash, exception",
        "1 scenario skipped: needs gpu",
        "    teardown",
    ]
