"""A minimisation from the job to its two files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from hanglab.analyzer.hang_similarity import SimilarityTest, recognise
from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.reduced_program import ReducedProgram, operations_of, whole
from hanglab.analyzer.program.sound_program import without_fault
from hanglab.analyzer.replayable import ReplayableJob, program_of
from hanglab.analyzer.simulated_verdict import semantics_of, simulated
from hanglab.analyzer.verdict import Status
from hanglab.harness.jobs.run_folder import RunFolder, write_new
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER, Launchers
from hanglab.harness.minimisation.artefacts import scenario_text, script_text
from hanglab.harness.minimisation.backend_lines import commands
from hanglab.harness.minimisation.confirmation import (
    Confirmed,
    Confirmer,
    MinimisationStopped,
    VerdictAgreement,
)
from hanglab.harness.minimisation.output_files import OutputFiles
from hanglab.harness.minimisation.reproduction import Reproduction
from hanglab.harness.minimisation.search import Search
from hanglab.harness.report.minimisation_progress import MinimisationProgress
from hanglab.harness.report.panel import make_console
from hanglab.recorder.case.backends import DEFAULT_BACKEND


class Minimiser:
    """``found`` is what the script does, once there is one, also where it was stopped."""

    def __init__(
        self,
        job: ReplayableJob,
        files: OutputFiles,
        folder: Callable[[], RunFolder],
        stop: threading.Event,
        deadline_s: float,
        backend: str = DEFAULT_BACKEND,
    ) -> None:
        """``folder`` makes the folder of the real runs, once one is needed."""
        self._job = job
        self._files = files
        self._make_folder = folder
        self._stop = stop
        self._deadline_s = deadline_s
        self._backend = backend
        self.found: Confirmed | None = None
        self._folder: RunFolder | None = None
        #: None as long as the scenario has not been run.
        self._scenario_passes: bool | None = None
        self._has_control = False

    def run(self) -> int:
        """The exit code.  Raises NotReplayable, HangLost, RunFailed, ArtifactsError, UsageError."""
        try:
            self._run()
        except MinimisationStopped:
            return 130
        exact = self.found is not None and self.found.agreement is VerdictAgreement.EXACT
        return 0 if exact and self._scenario_passes else 1

    def _run(self) -> None:
        """Raises MinimisationStopped as soon as somebody has asked for it."""
        job = self._job
        program = program_of(job)
        progress = MinimisationProgress(make_console(errors=True), sum(map(len, job.calls)))
        launchers = Launchers()
        with progress.shown():
            try:
                # To import torch takes as long as to simulate the job, and goes beside it.
                launchers[DEFAULT_LAUNCHER].prepare()
                similarity, starts = recognise(job, self._check, semantics_of(self._backend))
                self._folder = self._make_folder()
                confirmer = Confirmer(
                    similarity.kept_verdict,
                    job.ended,
                    job.endings,
                    self._template(program, similarity),
                    self._folder,
                    launchers,
                    self._stop,
                    progress,
                    self._deadline_s,
                    job.positions,
                    positions_first=not similarity.cause,
                    hung_here=job.verdict.status is Status.HUNG
                    and semantics_of(job.backend) == semantics_of(self._backend),
                )
                self._search(similarity, starts, confirmer, progress)
                self._check()
                self._write_scenario(confirmer)
            finally:
                launchers.close()

    def _check(self) -> None:
        if self._stop.is_set():
            raise MinimisationStopped

    def _template(self, program: Program, similarity: SimilarityTest) -> Reproduction:
        kept_verdict = similarity.kept_verdict
        return Reproduction(
            reduced=whole(program),
            endings=(),
            whole_ranks=program.world_size,
            whole_operations=len(operations_of(program)),
            cause=kept_verdict.cause,
            blamed=kept_verdict.culprits,
            backend=self._backend,
            before_stop=self._job.before_stop,
        )

    def _search(
        self,
        similarity: SimilarityTest,
        starts: Iterator[ReducedProgram],
        confirmer: Confirmer,
        progress: MinimisationProgress,
    ) -> None:
        """Write the script of the smallest that is confirmed, also where it is stopped."""

        def tell(what: str, reduced: ReducedProgram) -> None:
            self._check()
            progress.tried(what, reduced.calls)

        search = Search(similarity, confirmer, tell)
        try:
            search.run(starts)
        finally:
            if search.confirmed is not None:
                script = self._files.script
                text = script_text(search.confirmed.reproduction, script.name)
                write_new(script, text, kept=search.confirmed.path)
                self.found = search.confirmed

    def _write_scenario(self, confirmer: Confirmer) -> None:
        """Write the scenario, with a control if one ends well; it stays only if runs confirm it."""
        assert self.found is not None and self._folder is not None
        reproduction = replace(self.found.reproduction, sound=self._sound_program())
        tries = [reproduction, replace(reproduction, sound=None)]
        for attempt in tries if reproduction.sound is not None else tries[1:]:
            text = scenario_text(attempt, self._files.name, self.found.verdict, self.found.script)
            number = len(list(self._folder.path.glob("scenario_*.py")))
            trial = self._folder.path / f"scenario_{number}.py"
            trial.write_text(text)
            has_control = attempt.sound is not None
            self._scenario_passes = confirmer.scenario_passes(trial, has_control)
            if self._scenario_passes:
                self._has_control = has_control
                write_new(self._files.scenario, text, kept=trial)
                return

    def _sound_program(self) -> Program | None:
        assert self.found is not None
        reduced = self.found.reproduction.reduced
        named = self._job.verdict.culprits
        culprits = [rank for rank, name in enumerate(reduced.ranks) if name in named]
        semantics = semantics_of(self._backend)

        def is_sound(program: Program) -> bool:
            self._check()
            simulation = simulated(program, semantics)
            return not simulation.run.stuck and simulation.verdict.cause is None

        return without_fault(reduced.program, culprits, is_sound, semantics)

    def sentences(self) -> Iterator[str]:
        """The outcome, for people."""
        for sentence in self._job.assumptions:
            yield f"assumed: {sentence}"
        if self.found is None:
            return
        reproduction = self.found.reproduction
        yield (
            f"{reproduction.ranks} of {reproduction.whole_ranks} ranks and "
            f"{reproduction.operations} of {reproduction.whole_operations:,} operations are left: "
            f"{reproduction.reason}"
        )
        if reproduction.caveat:
            yield reproduction.caveat
        script, scenario = self._files.script, self._files.scenario
        for command in commands(self._backend, reproduction.ranks, str(script)):
            yield f"{script}: {command}"
        if self._scenario_passes:
            how = "" if self._backend == DEFAULT_BACKEND else f"--backend {self._backend} "
            how += "" if self._has_control else "--no-control "
            why = "" if self._has_control else " (no control that ends well was found)"
            yield f"{scenario}: hanglab run {how}{scenario}{why}"
        elif self._scenario_passes is not None:
            yield "As a scenario it did not get the same verdict again, so none is written."
