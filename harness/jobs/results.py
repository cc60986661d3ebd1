"""Results of a run as JSON: ``results.json`` in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from hanglab.harness.jobs.code_version import hanglab_version, scenario_digest, torch_version
from hanglab.harness.jobs.outcome import exit_code
from hanglab.harness.jobs.plan import Options
from hanglab.harness.jobs.run import Result, expectation
from hanglab.harness.jobs.run_folder import RunFolder, write_json
from hanglab.harness.jobs.stored_run import StoredJob, StoredRun, count_by_backend


def write_results(
    folder: RunFolder, options: Options, results: Sequence[Result], *, interrupted: bool = False
) -> StoredRun:
    """Writes the run's ``results.json`` and gives back its content.

    A run on several backends has one in the folder of each, too.
    """
    jobs = [stored(result) for result in results]
    for backend in folder.backends:
        own = [job for job in jobs if job.backend == backend]
        part = folder.of(backend)
        part.path.mkdir(exist_ok=True)
        write_jobs(part, replace(options, backend=backend), own, interrupted=interrupted)
    return write_jobs(folder, options, jobs, interrupted=interrupted)


def write_jobs(
    folder: RunFolder, options: Options, jobs: list[StoredJob], *, interrupted: bool = False
) -> StoredRun:
    """Write results that :func:`stored` has made."""
    content = StoredRun(
        folder=str(folder.path),
        exit_code=exit_code(job.outcome for job in jobs),
        hanglab=hanglab_version(),
        torch=torch_version(),
        started=folder.began,
        shard=options.shard,
        interrupted=interrupted,
        backend=options.backend,
        launcher=options.launcher,
        seed=options.seed,
        counts=count_by_backend(jobs),
        results=jobs,
    )
    write_json(folder.results, content)
    return content


def stored(result: Result) -> StoredJob:
    """A result as ``results.json`` has it."""
    request = result.request
    return StoredJob(
        scenario=result.name,
        variant=request.variant if request else None,
        backend=request.backend if request else None,
        launcher=request.launcher if request else None,
        repetition=request.repetition if request else None,
        seed=request.seed if request else None,
        world_size=request.world_size if request else None,
        code=scenario_digest(request.scenario) if request else None,
        outcome=result.outcome,
        reason=result.judgement.reason,
        expected=expectation(request) if request else None,
        verdict=msgspec.to_builtins(result.verdict),
        seconds=round(result.seconds, 3),
        artifacts=str(result.folder) if result.folder else None,
        detail=result.detail,
    )
