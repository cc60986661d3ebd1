"""The history of scenarios as tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timezone

from hanglab.harness.evaluation.tables import ReportTable, with_interval
from hanglab.harness.history.history import ScenarioHistory, SuiteHistory
from hanglab.harness.history.past_jobs import PastJob, PastRun
from hanglab.harness.history.stability import LEAST_JOBS, LEAST_SHARE, ScenarioState, Stability

_COLUMNS = (
    "scenario",
    "variant",
    "backend",
    "state",
    "runs",
    "jobs",
    "passed",
    "rate (95 %)",
    "trend",
    "first failure",
    "latest failure",
)


def tables_of_history(found: SuiteHistory, *, everything: bool) -> list[ReportTable]:
    """Scenarios, without ``everything`` those alone that ever failed, and the runs."""
    rows = [one for one in found.scenarios if everything or one.first_failure is not None]
    where = _circumstances(found.scenarios)
    numbers = {run: str(number) for number, run in enumerate(found.runs, 1)}
    scenarios = ReportTable(
        "Scenarios, by the attention that they need",
        _COLUMNS,
        [_row(one, where, numbers) for one in rows],
        note=_note(found, len(found.scenarios) - len(rows)),
        numbers=frozenset((4, 5, 6, 7)),
    )
    return [_runs(found, numbers), scenarios]


def _runs(found: SuiteHistory, numbers: Mapping[PastRun, str]) -> ReportTable:
    left_out = f"{found.left_out} jobs say nothing: skipped, interrupted, or nothing is expected."
    return ReportTable(
        "Runs",
        ("run", "began (UTC)", "hanglab", "torch", "folder"),
        [
            [number, _moment(run), run.hanglab or "-", run.torch or "-", run.folder]
            for run, number in numbers.items()
        ],
        note=left_out if found.left_out else "",
        numbers=frozenset((0,)),
    )


def _moment(run: PastRun) -> str:
    return f"{run.started.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def _note(found: SuiteHistory, hidden: int) -> str:
    counts = Counter(one.judged.state for one in found.scenarios)
    words = ", ".join(f"{counts[state]} {state.value}" for state in Stability if counts[state])
    told = f"{words or 'No job of a scenario was judged'}."
    if hidden:
        told += " Those without a failure are shown with --all."
    return (
        f"{told} trend: a sign a run, . passed, F failed, ~ both. flaky: under one version of the "
        f"code at least {LEAST_JOBS} jobs passed and {LEAST_JOBS} failed, and the interval lies "
        f"within {100 * LEAST_SHARE:.0f} to {100 * (1 - LEAST_SHARE):.0f} %."
    )


def _circumstances(rows: Sequence[ScenarioHistory]) -> set[str]:
    """Scenarios that ran under several launchers, or on several numbers of ranks."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for row in rows:
        found[row.scenario].add((row.launcher, row.world_size))
    return {name for name, several in found.items() if len(several) > 1}


def _row(row: ScenarioHistory, told_where: set[str], numbers: Mapping[PastRun, str]) -> list[str]:
    backend = row.backend
    if row.scenario in told_where:
        backend += f", {row.launcher}, {row.world_size} ranks"
    return [
        row.scenario,
        row.variant,
        backend,
        _state(row.judged, numbers),
        str(row.runs),
        str(row.passed.of),
        str(row.passed.count),
        with_interval(row.passed),
        row.trail if row.trend == "none seen" else f"{row.trail} {row.trend}",
        _failure(row.first_failure, numbers),
        _failure(row.latest_failure, numbers),
    ]


def _state(judged: ScenarioState, numbers: Mapping[PastRun, str]) -> str:
    if judged.since is not None:
        code = {True: ", with other code", False: ", with the same code", None: ""}
        return f"{judged.state.value} run {numbers[judged.since]}{code[judged.code_changed]}"
    alone = (Stability.ALWAYS_FAILS, Stability.NO_FAILURES)
    newest = judged.version is not None and judged.state in alone
    return judged.state.value + (" with the newest code" if newest else "")


def _failure(job: PastJob | None, numbers: Mapping[PastRun, str]) -> str:
    return f"run {numbers[job.run]}, {job.outcome.value}" if job is not None else "-"
