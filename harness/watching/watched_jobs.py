"""The jobs that a watch has in view, also where one turns out to be a part of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hanglab.harness.watching.capturing import RunningCapture
from hanglab.harness.watching.closer_look import CloserLook
from hanglab.harness.watching.finding import FoundJob
from hanglab.harness.watching.job_pace import JobPauses
from hanglab.harness.watching.readings import RankReader

Key = tuple[object, ...]

#: Seconds after which a job without ranks here is forgotten.
_FORGOTTEN_S = 3600.0


@dataclass
class WatchedJob:
    """One job, over its attempts."""

    found: FoundJob
    pace: JobPauses
    readers: dict[int, RankReader] = field(default_factory=dict)
    closer: CloserLook = field(default_factory=CloserLook)
    capture: RunningCapture | None = None
    #: Told to stand, until it moves again.
    stopped: bool = False
    moved_looks: int = 0
    rested_s: float = 0.0
    attempt: int = 0
    #: The last attempt whose first failure has been told.
    failed_attempt: int = -1
    gone_s: float | None = None

    def close(self) -> None:
        self.closer.close()
        self.end_capture()

    def end_capture(self) -> None:
        if self.capture is not None:
            self.capture.close()
            self.capture = None


class WatchedJobs:
    """Jobs by the keys under which they were found last."""

    def __init__(self) -> None:
        self._jobs: dict[Key, WatchedJob] = {}

    def __iter__(self) -> Iterator[WatchedJob]:
        return iter([*self._jobs.values()])

    def add(self, job: WatchedJob) -> WatchedJob:
        self._jobs[job.found.key] = job
        return job

    def take(self, found: FoundJob) -> WatchedJob | None:
        """The job as which most of these ranks are watched, else the one that had this key.

        Ranks in several containers show only once they are connected that they are one job's; what
        was watched of the others until then is given up.
        """
        held = Counter(
            key for key, job in self._jobs.items() for pid in job.readers if pid in found.ranks
        )
        former = max(held, key=lambda key: (held[key], key == found.key), default=found.key)
        for key in held.keys() - {former}:
            self._part(key, found)
            # It would have been of a part.
            self._jobs[former].end_capture()
        if former != found.key:
            if (other := self._jobs.pop(found.key, None)) is not None:
                other.close()
            self._jobs[found.key] = self._jobs.pop(former)
        if (job := self._jobs.get(found.key)) is not None:
            job.found = found
        return job

    def _part(self, key: Key, found: FoundJob) -> None:
        job = self._jobs[key]
        for pid in found.ranks:
            job.readers.pop(pid, None)
        if not job.readers:
            self._jobs.pop(key).close()

    def keep(self, now: set[Key], now_s: float) -> None:
        """Takes in which jobs are left; what has gone for long is forgotten."""
        for key, job in [*self._jobs.items()]:
            if key in now:
                job.gone_s = None
                continue
            job.readers.clear()
            job.gone_s = job.gone_s if job.gone_s is not None else now_s
            if job.capture is None and now_s - job.gone_s > _FORGOTTEN_S:
                del self._jobs[key]
