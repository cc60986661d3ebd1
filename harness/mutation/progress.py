"""Progress of mutation testing: a run's, with the fate of each mutant in place of its outcome."""

from __future__ import annotations

from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.run import Result
from hanglab.harness.report.progress import RunProgress


class MutationProgress(RunProgress):
    """Running mutants, a bar and the time left; a line for each that was judged."""

    def word(self, result: Result) -> str:
        if result.outcome is Outcome.HARNESS_ERROR:
            return super().word(result)
        # Nothing is expected of the original yet.
        return result.judgement.reason or "ran"
