"""Jobs of mutation testing: the original as control and counted, then its mutants."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hanglab.analyzer.engine import was_emulated
from hanglab.analyzer.verdict import Status
from hanglab.harness.errors import HanglabError
from hanglab.harness.jobs.outcome import Judgement, Outcome, describe
from hanglab.harness.jobs.plan import Options, requests_of, script_scenario
from hanglab.harness.jobs.run import Result, RunRequest
from hanglab.harness.jobs.run_folder import ArtifactsError, JobFolder, RunFolder
from hanglab.harness.jobs.running import Listener, RunFailed, run_all
from hanglab.harness.launchers.environment import WARM_IMPORTS
from hanglab.harness.launchers.selection import Launchers
from hanglab.harness.mutation.judgement import Fate, MutantJudgement, judge
from hanglab.harness.mutation.mutant import Mutant, support_file
from hanglab.harness.mutation.observation import End, observe
from hanglab.harness.mutation.pace import chance_share
from hanglab.harness.mutation.statement_counts import Profile
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.recorder.case.backends import backend_of

#: What torch puts before the lines of an exception.
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
#: Names the folder in which ranks leave what happened, outside of the Case.
TRUTH_VARIABLE = "HANGLAB_MUTATION_TRUTH"
#: A mutant may take so many times the control's seconds, and as many more besides.
_SLOWEST_FACTOR, _SLOWEST_S = 4.0, 30.0


class ControlError(HanglabError):
    """The original script does not run, or is not healthy: nothing can be said of its mutants."""

    advice = "Mend it first: `hanglab run SCRIPT --world-size N` shows what it does."
    exit_code = 3


class Interrupted(HanglabError):
    """Ctrl-C came before there was anything to keep."""


@dataclass
class MutationFolder:
    """Everything of one call of ``hanglab mutate``."""

    path: Path

    @property
    def mutants(self) -> Path:
        return self.path / "mutants"

    @property
    def misses(self) -> Path:
        return self.path / "misses"

    @property
    def truth(self) -> Path:
        return self.path / "truth"

    @property
    def jobs(self) -> RunFolder:
        return RunFolder(self.path / "jobs")

    @classmethod
    def create(cls, path: Path) -> MutationFolder:
        """Raises ArtifactsError."""
        folder = cls(path)
        try:
            for part in (folder.mutants, folder.truth, folder.path / "jobs"):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise ArtifactsError(f"{path} cannot be created: {failure.strerror}") from failure
        return folder


@dataclass
class MutationRun:
    """Runs jobs of one script; what all of them share."""

    folder: MutationFolder
    options: Options
    launchers: Launchers
    stop: threading.Event
    arguments: tuple[str, ...] = ()
    #: Modules that the ranks of all jobs need not import themselves.
    warm_imports: tuple[str, ...] = ()
    control: JobFolder | None = field(default=None, init=False)
    control_seconds: float = field(default=0.0, init=False)
    #: Share of the time by which ranks of the original differ.
    chance_share: float = field(default=0.0, init=False)

    def run_original(self, script: Path, listener: Listening) -> Profile:
        """Runs the script as it is, and once more counted.

        Raises RunFailed where it comes to no verdict, ControlError where it fails or is not
        healthy, CountingError where it was not counted.
        """
        program = support_file("counting_program.py")
        control = script_scenario(script, self.options, self.arguments)
        counted = replace(
            script_scenario(program, self.options, [str(script), *self.arguments]),
            name="counted",
        )
        requests = [
            replace(self._request(scenario), variant="control")
            for scenario in (replace(control, name="original"), counted)
        ]
        results = self._run(requests, listener(requests))
        if len(results) < len(requests) or self.stop.is_set():
            raise Interrupted("interrupted before the original had run")
        self._check_control(script, results[0])
        self._check_backend(script, results[0])
        return Profile.read(self.folder.truth, self.options.world_size or 4)

    def _check_control(self, script: Path, result: Result) -> None:
        name = script.name
        if result.verdict is None or result.folder is None:
            raise RunFailed(f"{name} could not be run: {result.judgement.reason}")
        self.control, self.control_seconds = JobFolder(result.folder), result.seconds
        self.chance_share = chance_share(self.control.case)
        observation = observe(self.control, self.folder.truth, script, None)
        if observation.end is End.FAILS:
            raise ControlError(
                f"{name} fails as it is, without any mutation: {_last_error(self.control)}"
            )
        if observation.end is End.HANGS:
            raise ControlError(
                f"{name} does not end as it is, without any mutation "
                f"({describe(result.verdict)}); {self.control.path} has its Case."
            )
        if result.verdict.status is not Status.HEALTHY:
            raise ControlError(
                f"{name} ends well, but is not healthy as it is: {describe(result.verdict)} "
                f"({result.verdict.summary})"
            )

    def _check_backend(self, script: Path, result: Result) -> None:
        """Refuses a script whose own words keep it from the backend that was asked for."""
        emulated = backend_of(self.options.backend).emulated
        if emulated and result.verdict is not None and not was_emulated(result.verdict):
            raise ControlError(
                f"{script.name} makes no group on {self.options.backend}: it names another "
                "backend itself, or none.",
                'It is to say init_process_group("nccl"), or init_process_group() alone.',
            )

    def run_mutants(
        self,
        mutants: Sequence[Mutant],
        listener: Listening,
        judged: Callable[[MutantJudgement], None],
    ) -> list[MutantJudgement]:
        """Runs and judges them; those that an interrupt kept from running are not among them."""
        slowest = min(self.options.deadline_s, _SLOWEST_S + _SLOWEST_FACTOR * self.control_seconds)
        requests: list[RunRequest] = []
        by_request: dict[RunRequest, Mutant] = {}
        for mutant in mutants:
            scenario = script_scenario(mutant.path, self.options, self.arguments)
            request = self._request(scenario, slowest)
            requests.append(request)
            by_request[request] = mutant
        judgements: dict[RunRequest, MutantJudgement] = {}
        lock = threading.Lock()

        def take(result: Result) -> Result:
            assert result.request is not None
            judgement = self._judge(by_request[result.request], result)
            with lock:
                if result.judgement.reason != "interrupted":
                    judgements[result.request] = judgement
                    judged(judgement)
            return replace(result, judgement=_as_outcome(judgement))

        self._run(requests, _Judging(listener(requests), take))
        return [judgements[request] for request in requests if request in judgements]

    def _judge(self, mutant: Mutant, result: Result) -> MutantJudgement:
        observation = None
        if result.folder is not None and result.verdict is not None:
            job = JobFolder(result.folder)
            observation = observe(job, self.folder.truth, mutant.path, self.control)
        judgement = judge(
            mutant,
            result.verdict,
            observation,
            result.judgement.reason,
            chance_share=self.chance_share,
            enqueued=backend_of(self.options.backend).enqueued,
        )
        judgement.seconds = round(result.seconds, 3)
        judgement.artifacts = str(result.folder) if result.folder else None
        return judgement

    def _request(self, scenario: Scenario, deadline_s: float | None = None) -> RunRequest:
        options = replace(
            self.options, control=False, deadline_s=deadline_s or self.options.deadline_s
        )
        return requests_of(scenario, options)[0]

    def _run(self, requests: Sequence[RunRequest], listener: Listener) -> list[Result]:
        with (
            _variable(TRUTH_VARIABLE, str(self.folder.truth)),
            _variable(WARM_IMPORTS, ",".join(self.warm_imports)),
        ):
            return run_all(
                requests,
                self.folder.jobs,
                self.launchers,
                self.options.jobs,
                self.stop,
                listener,
            )


#: Makes what hears of the jobs that are to run.
Listening = Callable[[Sequence[RunRequest]], Listener]


@dataclass
class _Judging:
    """Has each result judged before it is shown."""

    shown: Listener
    take: Callable[[Result], Result]

    def phase(self, request: RunRequest, phase: str) -> None:
        self.shown.phase(request, phase)

    def result(self, result: Result) -> None:
        self.shown.result(self.take(result))


_OUTCOMES = {
    Fate.FOUND: Outcome.PASS,
    Fate.MISSED: Outcome.WRONG_VERDICT,
    Fate.SILENT: Outcome.SKIPPED,
    Fate.NOT_STRUCK: Outcome.NOT_REPRODUCED,
    Fate.ERROR: Outcome.HARNESS_ERROR,
}


def _as_outcome(judgement: MutantJudgement) -> Judgement:
    outcome = _OUTCOMES[judgement.fate]
    if judgement.fate is Fate.MISSED and not judgement.detected:
        outcome = Outcome.INCONCLUSIVE
    return Judgement(outcome, judgement.reason or judgement.fate.value)


def _last_error(job: JobFolder) -> str:
    """The last line that the first rank with any has written to its standard error."""
    for path in sorted(job.log.glob("rank*.err")):
        lines = path.read_text(errors="replace").splitlines()
        told = [_RANK_PREFIX.sub("", line) for line in lines]
        errors = [line for line in told if line.strip() and not line.startswith((" ", "Trace"))]
        if errors:
            return f"rank {path.stem.removeprefix('rank')} said {errors[-1].strip()!r}."
    return f"{job.log} has what its ranks printed."


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Jobs take their environment from this process's."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
