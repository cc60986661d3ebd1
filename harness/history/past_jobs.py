"""Jobs of several runs that came to an outcome, by scenario, and in their order in time."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from hanglab.harness.errors import UsageError
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.stored_run import FoundRun, StoredJob, UnreadableResults

#: Reason of a job that Ctrl-C ended: it says nothing about the scenario.
_INTERRUPTED = "interrupted"


class PastRun(msgspec.Struct, frozen=True):
    """A run: when it began, where it lies, and its versions; None where none is told."""

    started: datetime.datetime
    folder: str
    hanglab: str | None = None
    torch: str | None = None


class CodeVersion(msgspec.Struct, frozen=True):
    """Everything known of the code that decided how a job came out."""

    hanglab: str
    torch: str | None
    #: Digest of the scenario's files.
    scenario: str


class PastJob(msgspec.Struct, frozen=True):
    """A job that passed or failed; ``version`` is None where the run does not tell it."""

    run: PastRun
    passed: bool
    outcome: Outcome
    reason: str
    artifacts: str | None
    version: CodeVersion | None


class Circumstances(NamedTuple):
    """Circumstances under which outcomes may be counted together; the seed is left to chance."""

    scenario: str
    variant: str
    backend: str
    launcher: str
    world_size: int


class PastJobs(msgspec.Struct):
    """``left_out`` counts jobs that say nothing: skipped, interrupted, or nothing expected."""

    by_key: dict[Circumstances, list[PastJob]]
    runs: list[PastRun]
    left_out: int = 0


def collect_past_jobs(found: Sequence[FoundRun]) -> PastJobs:
    """The jobs of all runs, the oldest first; a run that is given twice by links counts once.

    Raises UnreadableResults for a run that does not tell when it began, and UsageError
    where jobs would count twice.
    """
    runs = list({one.path.resolve(): one for one in found}.values())
    _check_counted_once(runs)
    named = sorted(
        ((_past_run(one), one) for one in runs), key=lambda pair: (pair[0].started, pair[0].folder)
    )
    gathered = PastJobs({}, [run for run, _ in named])
    for run, one in named:
        for job in one.run.results:
            key = _key(job, one.run.launcher)
            if key is None:
                gathered.left_out += 1
            else:
                gathered.by_key.setdefault(key, []).append(_past_job(job, run, one))
    return gathered


def _check_counted_once(found: Sequence[FoundRun]) -> None:
    places: dict[str, FoundRun] = {}
    for one in found:
        for digest in (one.digest, *(part.digest for part in one.run.merged)):
            first = places.setdefault(digest, one)
            if first is not one:
                raise UsageError(
                    f"{first} and {one} have the same jobs: one is a copy of the other, or was "
                    "united from it.",
                    "Leave one of the two out.",
                )


def _past_run(one: FoundRun) -> PastRun:
    if one.run.started is None:
        raise UnreadableResults(
            f"{one.path} does not tell when its run began: an older hanglab wrote it.",
            "Leave it out, or run its scenarios again.",
        )
    return PastRun(one.run.started, str(one), one.run.hanglab, one.run.torch)


def _key(job: StoredJob, launcher: str) -> Circumstances | None:
    """None for a job that says nothing of its scenario."""
    if job.outcome is Outcome.SKIPPED or job.reason == _INTERRUPTED:
        return None
    if job.expected is None or job.variant is None or job.backend is None:
        return None
    return Circumstances(
        job.scenario, job.variant, job.backend, job.launcher or launcher, job.world_size or 0
    )


def _past_job(job: StoredJob, run: PastRun, one: FoundRun) -> PastJob:
    version = None
    if one.run.hanglab is not None and job.code is not None:
        version = CodeVersion(one.run.hanglab, one.run.torch, job.code)
    artifacts = one.run.artifacts_of(job, Path(run.folder))
    return PastJob(
        run=run,
        passed=job.outcome is Outcome.PASS,
        outcome=job.outcome,
        reason=job.reason,
        artifacts=str(artifacts) if artifacts is not None else None,
        version=version,
    )
