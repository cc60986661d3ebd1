"""Running a suite's scripts, and the answers on them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console

from hanglab.analyzer.engine import was_emulated
from hanglab.harness.evaluation.answers import CaseAnswer, answer_of
from hanglab.harness.evaluation.contenders import Hanglab
from hanglab.harness.evaluation.heuristics import HeuristicChoice
from hanglab.harness.evaluation.suite.declaration import LabelledScript, LabelledSuite
from hanglab.harness.jobs.plan import DEFAULT_DEADLINE_S, Options, requests_of, script_scenario
from hanglab.harness.jobs.results import write_results
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.jobs.running import run_all
from hanglab.harness.launchers.selection import Launchers
from hanglab.harness.report.progress import RunProgress
from hanglab.recorder.case.backends import DEFAULT_BACKEND

Observed = Literal["hangs", "fails", "fine"]


class ScriptRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run of one script: the answer, or why there is none."""

    answer: CaseAnswer | None
    observed: Observed | None = None
    problem: str = ""
    seconds: float = 0.0
    #: No GPU was behind its groups, by its verdict.
    emulated: bool = False


@dataclass(frozen=True)
class RunOptions:
    """Settings of the runs."""

    jobs: int = 1
    repeat: int = 1
    hang_after_s: float | None = None
    deadline_s: float = DEFAULT_DEADLINE_S
    choice: HeuristicChoice = HeuristicChoice()
    backend: str = DEFAULT_BACKEND


def run_suite(
    suite: LabelledSuite,
    folder: Path,
    options: RunOptions,
    root: Path,
    console: Console,
    stop: threading.Event,
) -> dict[str, list[ScriptRun]]:
    """Runs of each script by its file, fewer where ``stop`` was set; artifacts below ``root``."""
    requests: list[RunRequest] = []
    files: dict[RunRequest, str] = {}
    settings = Options(
        backend=options.backend,
        jobs=options.jobs,
        repeat=options.repeat,
        control=False,
        deadline_s=options.deadline_s,
    )
    for script in suite.scripts:
        for request in _requests(script, folder, settings, options.hang_after_s):
            requests.append(request)
            files[request] = script.file
    artifacts = RunFolder.create(root.absolute())
    progress = RunProgress(console, requests)
    with progress.shown():
        launchers = Launchers()
        try:
            results = run_all(requests, artifacts, launchers, options.jobs, stop, progress)
        finally:
            launchers.close()
    write_results(artifacts, settings, results, interrupted=stop.is_set())
    runs: dict[str, list[ScriptRun]] = {}
    for result in results:
        assert result.request is not None
        if result.judgement.reason != "interrupted":
            runs.setdefault(files[result.request], []).append(_run_of(result, options.choice))
    return runs


def _requests(
    script: LabelledScript,
    folder: Path,
    settings: Options,
    hang_after_s: float | None,
) -> Sequence[RunRequest]:
    settings = replace(
        settings, world_size=script.ranks, hang_after_s=script.hang_after or hang_after_s
    )
    scenario = script_scenario((folder / script.file).resolve(), settings, script.arguments)
    # Two folders may have a script of one name.
    return requests_of(replace(scenario, name=script.name), settings)


def _run_of(result: Result, choice: HeuristicChoice) -> ScriptRun:
    if result.verdict is None or result.folder is None:
        return ScriptRun(answer=None, problem=result.judgement.reason, seconds=result.seconds)
    answer = answer_of(result.verdict)
    if choice.changes:
        answer = Hanglab(choice).conclude(result.folder / "case")
    return ScriptRun(
        answer=answer,
        observed=_observed(result),
        seconds=result.seconds,
        emulated=was_emulated(result.verdict),
    )


def _observed(result: Result) -> Observed | None:
    """End of the job, by its exits."""
    if result.folder is None or result.request is None:
        return None
    truth: dict[str, Any] = msgspec.json.decode((result.folder / "truth.json").read_bytes())
    exits = truth["exits"]
    if any(gone["code"] or gone["signal"] for gone in exits):
        return "fails"
    return "fine" if len(exits) >= result.request.world_size else "hangs"
