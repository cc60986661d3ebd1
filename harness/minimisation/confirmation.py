"""Real runs of cut-down hangs, and what they confirm."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from pathlib import Path
from types import MappingProxyType

from hanglab.analyzer.hang_similarity import KeptVerdict
from hanglab.analyzer.program.reduced_program import ReducedProgram
from hanglab.analyzer.recorded_endings import RecordedEnding
from hanglab.analyzer.simulated_verdict import semantics_of
from hanglab.analyzer.source_positions import SourcePosition
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.plan import Options, requests_of, script_scenario
from hanglab.harness.jobs.run import Result
from hanglab.harness.jobs.run_folder import RunFolder
from hanglab.harness.jobs.running import Listener, RunFailed, run_all
from hanglab.harness.launchers.selection import Launchers
from hanglab.harness.minimisation.artefacts import script_text
from hanglab.harness.minimisation.call_layout import positions_in
from hanglab.harness.minimisation.endings import RankEnding, endings_of
from hanglab.harness.minimisation.reproduction import Reproduction
from hanglab.harness.scenarios import discovery
from hanglab.harness.scenarios.declaration import DEFAULT_HANG_AFTER_S, Scenario

#: Seconds without movement, try after try.
HANG_AFTER_S = (DEFAULT_HANG_AFTER_S, 3.0, 6.0)


class MinimisationStopped(Exception):
    """Somebody asked to stop."""


class VerdictAgreement(IntEnum):
    """Degrees to which a real run has the job's verdict."""

    NONE = 0
    #: The same ranks are to blame, for another cause.
    CULPRITS = 1
    EXACT = 2


@dataclass(frozen=True)
class Confirmed:
    agreement: VerdictAgreement
    reproduction: Reproduction
    script: str
    #: The file that was run.
    path: Path
    verdict: Verdict


class Confirmer:
    """Runs scripts and scenarios in a folder of their own.

    Raises MinimisationStopped once ``stop`` is set, and RunFailed.
    """

    def __init__(
        self,
        kept_verdict: KeptVerdict,
        ended: Collection[int],
        recorded: Mapping[int, RecordedEnding],
        template: Reproduction,
        folder: RunFolder,
        launchers: Launchers,
        stop: threading.Event,
        listener: Listener,
        deadline_s: float,
        positions: Mapping[int, SourcePosition] = MappingProxyType({}),
        positions_first: bool = False,
        hung_here: bool = False,
    ) -> None:
        """``positions`` of the job's ranks, tried first or only where a run without does not do.

        ``hung_here``: the job hung, on a backend with the semantics of this one.
        """
        self._blame = kept_verdict
        self._ended = ended
        self._recorded = recorded
        self._template = template
        self._folder = folder
        self._launchers = launchers
        self._stop = stop
        self._listener = listener
        self._deadline_s = deadline_s
        self._positions = positions
        self._positions_first = positions_first
        self._hung_here = hung_here
        #: Real runs so far.
        self.runs = 0

    def confirm(self, reduced: ReducedProgram, enough: VerdictAgreement) -> Confirmed | None:
        """The best of a few real runs; None where none agrees.

        A run that does not agree as much as is ``enough`` is made again with a longer wait, and
        once more where it told nothing.
        """
        endings = list(
            endings_of(
                reduced,
                self._blame.cause,
                self._blame.culprits,
                self._ended,
                self._recorded,
                semantics_of(self._template.backend),
            )
        )
        layouts = self._layouts(reduced)
        best: Confirmed | None = None
        for attempt, hang_after_s in enumerate(HANG_AFTER_S):
            silent = False
            for positions, ending in product(layouts, endings):
                tried = replace(
                    self._template,
                    reduced=reduced,
                    endings=ending,
                    positions={} if RankEnding.BEHIND_LOOP in ending else positions,
                )
                found = self._try(tried, hang_after_s)
                silent = silent or found is None
                if found is not None and (best is None or found.agreement > best.agreement):
                    best = found
                if best is not None and best.agreement is VerdictAgreement.EXACT:
                    return best
            if (best is not None and best.agreement >= enough) or (attempt and not silent):
                break
        return None if best is None or best.agreement is VerdictAgreement.NONE else best

    def _layouts(self, reduced: ReducedProgram) -> list[dict[int, SourcePosition]]:
        placed = positions_in(self._positions, reduced, semantics_of(self._template.backend))
        if not placed:
            return [{}]
        return [placed, {}] if self._positions_first else [{}, placed]

    def _try(self, reproduction: Reproduction, hang_after_s: float) -> Confirmed | None:
        """Runs a script; None where it did not hang, or told nothing."""
        self.runs += 1
        path = self._folder.path / f"step_{self.runs}.py"
        script = script_text(reproduction, path.name)
        path.write_text(script)
        options = Options(
            backend=reproduction.backend,
            world_size=reproduction.ranks,
            control=False,
            hang_after_s=hang_after_s,
            deadline_s=self._deadline_s,
        )
        (result,) = self._run(script_scenario(path, options), options)
        verdict, ranks = result.verdict, reproduction.reduced.ranks
        if verdict is None:
            raise RunFailed(f"A run of {path} ended without a verdict: {result.judgement.reason}.")
        if verdict.status in (Status.HEALTHY, Status.INCONCLUSIVE):
            return None  # it may have been slow
        agreement = VerdictAgreement.NONE
        if self._blame.names(verdict, ranks):
            exact = self._blame.fits(verdict, ranks) and not self._ends_instead(verdict)
            agreement = VerdictAgreement.EXACT if exact else VerdictAgreement.CULPRITS
        told = replace(
            reproduction,
            status=verdict.status,
            caveat="" if agreement is VerdictAgreement.EXACT else self._caveat(verdict),
            hang_after_s=hang_after_s,
        )
        return Confirmed(agreement, told, script, path, verdict)

    def _ends_instead(self, verdict: Verdict) -> bool:
        """True if calls of a hang end with an error, on the backend that the job had hung on."""
        return self._hung_here and verdict.status is Status.FAILED

    def _caveat(self, verdict: Verdict) -> str:
        cause = verdict.cause.value if verdict.cause else "none"
        return (
            f"Run for real on {self._template.backend}, the calls come to {cause} instead of "
            f"{self._blame.cause.value}: what else the job did is no call, and is not here."
        )

    def scenario_passes(self, path: Path, control: bool) -> bool:
        """True if the scenario of that file gets its verdict, and its control is healthy."""
        for hang_after_s in HANG_AFTER_S:
            options = Options(
                backend=self._template.backend,
                control=control,
                hang_after_s=hang_after_s,
                deadline_s=self._deadline_s,
            )
            found = discovery.select([str(path)])
            if found.broken or not found.scenarios:
                return False
            results = self._run(found.scenarios[0], options)
            if all(result.outcome is Outcome.PASS for result in results):
                return True
        return False

    def _run(self, scenario: Scenario, options: Options) -> Sequence[Result]:
        requests = requests_of(scenario, options)
        results = run_all(requests, self._folder, self._launchers, 1, self._stop, self._listener)
        if self._stop.is_set() or len(results) < len(requests):
            raise MinimisationStopped
        return results
