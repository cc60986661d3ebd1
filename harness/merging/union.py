"""Results of several runs as those of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hanglab.harness.jobs.outcome import exit_code
from hanglab.harness.jobs.shard import Shard
from hanglab.harness.jobs.stored_run import (
    FoundRun,
    MergedRun,
    StoredJob,
    StoredRun,
    count_by_backend,
)
from hanglab.harness.merging.fitting import release
from hanglab.harness.report.markdown import JobRow


def unite(found: Sequence[FoundRun], missing: Sequence[Shard], folder: Path) -> StoredRun:
    """One run of all jobs, by name; their artifacts stay where they lie now.

    The runs must fit together (see :mod:`fitting`).
    """
    jobs = [job for one in found for job in _jobs_of(one)]
    jobs.sort(key=_place)
    runs = [one.run for one in found]
    torch = _words(run.torch for run in runs)
    started = [run.started for run in runs if run.started is not None]
    return StoredRun(
        folder=str(folder.absolute()),
        exit_code=exit_code(job.outcome for job in jobs),
        hanglab=runs[0].hanglab,
        torch=torch[0] if len(torch) == 1 else release(torch[0]) if torch else None,
        started=min(started, default=None),
        interrupted=any(run.interrupted for run in runs),
        backend=",".join(_words(name for run in runs for name in run.backend.split(","))),
        launcher=",".join(_words(name for run in runs for name in run.launcher.split(","))),
        seed=min(run.seed for run in runs),
        counts=count_by_backend(jobs),
        merged=[part for one in found for part in _parts(one)],
        missing_shards=list(missing),
        results=jobs,
    )


def _jobs_of(one: FoundRun) -> Iterable[StoredJob]:
    for job in one.run.results:
        artifacts = one.run.artifacts_of(job, one.path.parent.absolute())
        job.artifacts = str(artifacts) if artifacts is not None else None
        # Older results say it of the run alone.
        job.launcher = job.launcher or one.run.launcher or None
        yield job


def _parts(one: FoundRun) -> list[MergedRun]:
    run = one.run
    own = MergedRun(
        folder=str(one.path.parent.absolute()),
        digest=one.digest,
        started=run.started,
        shard=run.shard,
    )
    return run.merged or [own]


def _words(given: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(word for word in given if word))


def _place(job: StoredJob) -> tuple[str, str, str, int, int, bool]:
    where = (job.backend or "", job.launcher or "", job.world_size or 0)
    return (job.scenario, *where, job.repetition or 0, job.variant == "control")


def rows_of(run: StoredRun) -> list[JobRow]:
    """The jobs as rows of the run's page in Markdown."""
    return [_row(job) for job in run.results]


def _row(job: StoredJob) -> JobRow:
    verdict = job.verdict or {}
    ranks = f"{job.world_size} ranks" if job.world_size is not None else ""
    return JobRow(
        scenario=job.scenario,
        variant=job.variant or "",
        where=", ".join(_words((job.backend, job.launcher, ranks))),
        seed=str(job.seed) if job.seed is not None else "",
        expected=_status(job.expected or {}),
        actual=_status(verdict),
        culprits=",".join(map(str, verdict.get("culprits") or [])),
        outcome=job.outcome.value,
        reason=job.reason,
        seconds=job.seconds,
        artifacts=job.artifacts or "",
    )


def _status(told: dict[str, object]) -> str:
    return " ".join(str(told[key]) for key in ("status", "cause") if told.get(key))
