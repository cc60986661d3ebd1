"""Checks that runs are parts of one: no job twice, one version, no part missing."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.jobs.shard import Shard
from hanglab.harness.jobs.stored_run import FoundRun, JobKey, StoredJob, StoredRun


class IncompleteSuite(HanglabError):
    """Jobs of a suite are missing among the runs that are to be united."""

    advice = "Give their runs, too, or unite what there is with --incomplete, which exits with 4."


def check_jobs(found: Sequence[FoundRun]) -> None:
    """Raises UsageError where a job is in two of the runs, or a run is given twice."""
    seen: dict[JobKey, FoundRun] = {}
    for one in found:
        repeated: list[tuple[StoredJob, FoundRun]] = []
        for job in one.run.results:
            first = seen.setdefault(job.key, one)
            if first is not one:
                repeated.append((job, first))
        if repeated:
            job, first = repeated[0]
            more = f" and {len(repeated) - 1} more jobs are" if len(repeated) > 1 else " is"
            raise UsageError(
                f"{job.title}{more} in both {first} and {one}.",
                "Give each shard once; where one was run again, leave one of the two runs out.",
            )


def check_versions(found: Sequence[FoundRun]) -> None:
    """Raises UsageError where the runs are of several versions of hanglab or torch.

    Builds of one version of torch, such as for processors and for GPUs, are one version.
    """
    for name in ("hanglab", "torch"):
        places: dict[str, FoundRun] = {}
        for one in found:
            version = getattr(one.run, name)
            if name == "torch" and version is not None:
                version = release(version)
            places.setdefault(version or "an unknown one", one)
        if len(places) > 1:
            told = ", ".join(f"{version} in {one}" for version, one in places.items())
            raise UsageError(
                f"The runs are of several versions of {name}: {told}.",
                "Run all shards with one, or compare them with `hanglab history`.",
            )


def release(version: str) -> str:
    """A version without the build that follows ``+``."""
    return version.partition("+")[0]


def missing_shards(found: Sequence[FoundRun]) -> list[Shard]:
    """Shards of the suites that are there in part."""
    there = {shard for one in found for shard in _shards(one.run)}
    suites = sorted({(shard.asked, shard.of) for shard in there})
    return [
        shard
        for asked, of in suites
        for number in range(1, of + 1)
        if (shard := Shard(number, of, asked)) not in there
    ]


def _shards(run: StoredRun) -> list[Shard]:
    return [one for one in (run.shard, *(part.shard for part in run.merged)) if one is not None]


def check_complete(found: Sequence[FoundRun], missing: Sequence[Shard]) -> None:
    """Raises IncompleteSuite where a shard is missing, or was interrupted."""
    told = []
    if missing:
        several = len(missing) > 1
        names = ", ".join(map(str, missing))
        told.append(f"{f'Shards {names} are' if several else f'Shard {names} is'} missing.")
    told += [
        f"{one} was interrupted, so jobs of it are missing." for one in found if one.run.interrupted
    ]
    if told:
        raise IncompleteSuite(" ".join(told))
