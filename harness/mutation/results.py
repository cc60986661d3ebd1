"""Results of mutation testing on disk: the report, and a scenario of each miss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hanglab.harness.jobs.run_folder import write_json
from hanglab.harness.mutation.judgement import MutantJudgement
from hanglab.harness.mutation.miss_scenarios import is_miss, write_scenario
from hanglab.harness.mutation.mutant import Mutant, write_text
from hanglab.harness.mutation.running import MutationRun
from hanglab.harness.mutation.table import MutationReport, count, count_by_operator, markdown


def make_report(
    script: str,
    world_size: int,
    backend: str,
    judgements: list[MutantJudgement],
    *,
    seconds: float,
    interrupted: bool,
) -> MutationReport:
    return MutationReport(
        script=script,
        world_size=world_size,
        backend=backend,
        seconds=round(seconds, 1),
        interrupted=interrupted,
        total=count("all", judgements),
        operators=count_by_operator(judgements),
        mutants=judgements,
    )


def write_results(
    run: MutationRun, report: MutationReport, mutants: Sequence[Mutant]
) -> list[Path]:
    """Writes report and scenarios into the run's folder; gives the scenarios' files.

    Raises ArtifactsError.
    """
    by_name = {mutant.name: mutant for mutant in mutants}
    misses = [
        write_scenario(
            by_name[judgement.mutant],
            judgement,
            run.folder.misses,
            world_size=report.world_size,
            backend=report.backend,
            hang_after_s=run.options.hang_after_s or 0.0,
            arguments=run.arguments,
        )
        for judgement in report.mutants
        if is_miss(judgement)
    ]
    write_json(run.folder.path / "report.json", report)
    write_text(run.folder.path / "report.md", markdown(report))
    return misses
