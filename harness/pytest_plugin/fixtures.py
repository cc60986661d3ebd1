"""Fixtures for tests of one's own: jobs that run, Cases that are analyzed, verdicts compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.plan import (
    DEFAULT_DEADLINE_S,
    Options,
    refusal_of,
    requests_of,
    script_scenario,
)
from hanglab.harness.jobs.run_folder import Variant
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER, LAUNCHERS
from hanglab.harness.pytest_plugin.failure import (
    ComparedRow,
    actual_of,
    evidence_lines,
    fits,
    ranks,
    side_by_side,
)
from hanglab.harness.scenarios import discovery
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.recorder.case.backends import DEFAULT_BACKEND

if TYPE_CHECKING:
    from hanglab.harness.pytest_plugin.session import PluginSession
    from hanglab.recorder.case.reader import CaseReader

AssertVerdict = Callable[..., None]


class JobBroken(HanglabError):
    """A job got no verdict."""

    advice = "Its folder has the ranks' output and what hanglab itself has to say."


@dataclass(frozen=True)
class Examined:
    """A Case, or a folder of dumps, and what the analyzer says of it."""

    path: Path
    verdict: Verdict

    @property
    def evidence(self) -> CaseReader:
        """The captured evidence, rank by rank.  Raises NotACase for a bare folder of dumps."""
        from hanglab.recorder.case.reader import CaseReader

        return CaseReader(self.path)


@dataclass(frozen=True)
class JobDone(Examined):
    """A job that has run.  ``outcome`` is only told of a scenario."""

    folder: Path
    seconds: float
    outcome: Outcome | None

    def output(self, rank: int) -> str:
        """Standard output of a rank."""
        return (self.folder / "log" / f"rank{rank}.out").read_text(errors="replace")


class JobRunner:
    """``hanglab_job``: runs jobs for one test, below the run's artifacts."""

    def __init__(self, session: PluginSession, request: pytest.FixtureRequest) -> None:
        self._session = session
        self._request = request
        self._count = 0

    def __call__(
        self,
        program: str | Path,
        *,
        world_size: int | None = None,
        backend: str = DEFAULT_BACKEND,
        launcher: str = DEFAULT_LAUNCHER,
        arguments: Sequence[str] = (),
        variant: Variant = "fault",
        seed: int = 0,
        hang_after: float | None = None,
        deadline: float = DEFAULT_DEADLINE_S,
    ) -> JobDone:
        """Runs a plain script, or a file that declares one scenario; waits for its verdict.

        A relative path is looked for beside the test.  Skips the test where the
        machine cannot run it; raises JobBroken where there is no verdict.
        """
        if launcher not in LAUNCHERS:
            raise UsageError(f"There is no launcher {launcher}.", f"Say {', '.join(LAUNCHERS)}.")
        options = Options(
            backend=backend,
            launcher=launcher,
            world_size=world_size,
            seed=seed,
            hang_after_s=hang_after,
            deadline_s=deadline,
        )
        scenario = self._scenario(self._request.path.parent / program, options, arguments)
        scenario = replace(scenario, name=self._name(scenario.name))
        (asked,) = [one for one in requests_of(scenario, options) if one.variant == variant]
        refusal = refusal_of(scenario, asked)
        if refusal is not None:
            pytest.skip(refusal)
        result, _ = self._session.runner.run(asked)
        if result.verdict is None or result.folder is None:
            raise JobBroken(f"{result.judgement.reason}\n{result.detail}".strip())
        self._request.node.user_properties.append(("artifacts", str(result.folder)))
        judged = result.outcome if scenario.expect is not None else None
        case = result.folder / "case"
        return JobDone(case, result.verdict, result.folder, result.seconds, judged)

    def _scenario(self, path: Path, options: Options, arguments: Sequence[str]) -> Scenario:
        found = discovery.read_file(path)
        if found.broken:
            raise UsageError(found.broken[0].describe(), "Mend the declaration.")
        if len(found.scenarios) > 1:
            names = ", ".join(scenario.name for scenario in found.scenarios)
            raise UsageError(f"{path} declares {names}.", "A job runs one: give each its own file.")
        if found.scenarios:
            return found.scenarios[0]
        return script_scenario(path, options, arguments)

    def _name(self, program: str) -> str:
        """A folder's name: the test and the number of its job."""
        self._count += 1
        node = re.sub(r"[^\w.-]+", "_", self._request.node.nodeid)
        return f"{node[-120:]}.{program}.{self._count}"


class CaseAnalyzer:
    """``hanglab_case``: analyzes what lies on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, path: str | Path) -> Examined:
        """``path`` is a Case or a folder of dumps, beside the test where relative.

        Raises the analyzer's InputError where it can read nothing there.
        """
        __tracebackhide__ = True
        from hanglab.analyzer.engine import analyze
        from hanglab.analyzer.errors import InputError

        where = self._folder / path
        try:
            return Examined(where, analyze(where))
        except InputError as error:
            # pytest shows an exception's text alone, and the test's frame is the one that matters.
            raise InputError(f"{error}  {error.advice}", error.advice) from None


def assert_verdict(
    subject: Examined | Verdict,
    *,
    status: Status | str | None = None,
    cause: Cause | str | None = None,
    culprits: Collection[int] | None = None,
    group: str | None = None,
    location: str | None = None,
    confidence: float = 0.0,
) -> None:
    """Fails unless the verdict is as said; what is left out is not compared.

    ``location`` is ``file.py:12``, without folders.  ``confidence`` is the least
    that will do.  Raises AssertionError, with both sides and the evidence.
    """
    __tracebackhide__ = True
    verdict = subject.verdict if isinstance(subject, Examined) else subject
    actual = actual_of(verdict)
    wanted = {
        "status": None if status is None else Status(status).value,
        "cause": None if cause is None else Cause(cause).value,
        "culprits": None if culprits is None else ranks(culprits),
        "group": group,
        "location": location,
    }
    rows: list[ComparedRow] = [(k, v, actual[k]) for k, v in wanted.items() if v is not None]
    if not rows and not confidence:
        raise ValueError("say what is expected: status, cause, culprits, group, location")
    if confidence:
        least = max(confidence, verdict.confidence)
        rows.append(("confidence", f"{least:.2f}", f"{verdict.confidence:.2f}"))
    if all(fits(expected, got) for _, expected, got in rows):
        return
    lines = ["the verdict is another one", *side_by_side(rows), *evidence_lines(verdict)]
    if isinstance(subject, JobDone):
        lines += ["", f"artifacts  {subject.folder}"]
    raise AssertionError("\n".join(lines))
