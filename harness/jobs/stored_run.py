"""``results.json``: the form of a run's results, and the reading of what others have written."""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from hanglab.harness.errors import HanglabError
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.run_folder import RESULTS, RunFolder
from hanglab.harness.jobs.shard import Shard

SCHEMA: Final = "hanglab.run/1"
Moment = Annotated[datetime.datetime, msgspec.Meta(tz=True)]

#: The job's scenario, variant, backend, launcher, ranks, repetition and seed.
JobKey = tuple[str, str | None, str | None, str | None, int | None, int | None, int | None]


class UnreadableResults(HanglabError, ValueError):
    """A file or folder is not what a run has left."""

    advice = f"Give the folder of a run, with its {RESULTS}."


class StoredJob(msgspec.Struct, kw_only=True):
    """A job of a run; of a file that declares nothing that can be run, much is None."""

    scenario: str
    variant: str | None = None
    backend: str | None = None
    launcher: str | None = None
    repetition: int | None = None
    seed: int | None = None
    world_size: int | None = None
    #: Digest of the scenario's files.
    code: str | None = None
    outcome: Outcome
    reason: str = ""
    #: None where nothing is expected.
    expected: dict[str, Any] | None = None
    verdict: dict[str, Any] | None = None
    seconds: float = 0.0
    artifacts: str | None = None
    detail: str = ""

    @property
    def key(self) -> JobKey:
        where = (self.backend, self.launcher, self.world_size)
        return (self.scenario, self.variant, *where, self.repetition, self.seed)

    @property
    def title(self) -> str:
        words = [self.scenario, self.variant, f"#{self.repetition}" if self.repetition else None]
        where = ", ".join(filter(None, (self.backend, self.launcher)))
        return " ".join(filter(None, (*words, f"({where})" if where else None)))


class MergedRun(msgspec.Struct, kw_only=True):
    """A run whose results were united with others."""

    folder: str
    #: SHA-256 of its ``results.json``.
    digest: str
    started: Moment | None = None
    shard: Shard | None = None


class StoredRun(msgspec.Struct, kw_only=True):
    """Results of one run, or of several that were united."""

    schema: str = SCHEMA
    folder: str = ""
    exit_code: int = 0
    #: Versions that it ran with; None where none is told.
    hanglab: str | None = None
    torch: str | None = None
    started: Moment | None = None
    shard: Shard | None = None
    #: True where jobs are missing that were to run.
    interrupted: bool = False
    backend: str = ""
    launcher: str = ""
    seed: int = 0
    counts: dict[str, dict[str, int]] = {}
    merged: list[MergedRun] = []
    #: Shards that were not among those united.
    missing_shards: list[Shard] = []
    results: list[StoredJob] = []

    def artifacts_of(self, job: StoredJob, folder: Path) -> Path | None:
        """The job's folder, if the run, which may have been moved since, lies in ``folder``."""
        if job.artifacts is None:
            return None
        try:
            return folder / Path(job.artifacts).relative_to(self.folder)
        except ValueError:
            return Path(job.artifacts)


def count_by_backend(jobs: Iterable[StoredJob]) -> dict[str, dict[str, int]]:
    """Number of jobs by backend and outcome."""
    found: dict[str, Counter[str]] = {}
    for job in jobs:
        if job.backend is not None:
            found.setdefault(job.backend, Counter())[job.outcome.value] += 1
    return {backend: dict(counts) for backend, counts in found.items()}


@dataclass(frozen=True)
class FoundRun:
    """Results that were read, and the file that they are in."""

    path: Path
    run: StoredRun
    digest: str

    def __str__(self) -> str:
        return str(self.path.parent)


def read_run(path: Path) -> FoundRun:
    """Read one ``results.json``.  Raises UnreadableResults."""
    try:
        text = path.read_bytes()
        schema = msgspec.json.decode(text, type=_Header).schema
        if schema != SCHEMA:
            raise UnreadableResults(
                f"{path} is {schema[:80] or 'without a schema'}, not {SCHEMA}.",
                "Give what `hanglab run`, `pytest --hanglab` or `hanglab merge` has left.",
            )
        return FoundRun(
            path, msgspec.json.decode(text, type=StoredRun), hashlib.sha256(text).hexdigest()
        )
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableResults(f"{path} cannot be read: {error}.") from error


class _Header(msgspec.Struct):
    schema: str = ""


def find_runs(given: Sequence[Path]) -> list[FoundRun]:
    """Read the runs in files and folders: of several backends or sizes, pytest leaves one each.

    Raises UnreadableResults for the first that holds none, or cannot be read.
    """
    return [read_run(path) for place in given for path in _files_of(place)]


def _files_of(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise UnreadableResults(f"There is no {place}.")
    whole = RunFolder(place).results
    found = [whole] if whole.is_file() else sorted(place.glob(f"*/{RESULTS}"))
    runs = sorted({path.parent.resolve() for path in found})
    if len(runs) < len(found) or not found:
        # A link such as `latest` lies beside runs, and not in one.
        within = f"One of the runs in it may be meant, such as {found[0].parent}." if found else ""
        raise UnreadableResults(f"{place} is no run: there is no {RESULTS} in it.", within or None)
    return found
