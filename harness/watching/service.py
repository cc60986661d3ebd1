"""The watch itself: finds jobs, looks at them, has those captured that stop, tells of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanglab.analyzer.strengths import TIED
from hanglab.harness.errors import HanglabError
from hanglab.harness.recording.case_folder import want_of_room
from hanglab.harness.watching.capturing import CaptureResult, RunningCapture
from hanglab.harness.watching.endings import EndWatch, SeenEnding
from hanglab.harness.watching.events import Kind, WatchEvent
from hanglab.harness.watching.finding import JobFinder
from hanglab.harness.watching.job_pace import JobPauses
from hanglab.harness.watching.pace import PaceLimits
from hanglab.harness.watching.readings import RankReader, read_all
from hanglab.harness.watching.retention import CaseRetention
from hanglab.harness.watching.watched_jobs import WatchedJob, WatchedJobs
from hanglab.recorder.agent.counters import CounterFile
from hanglab.recorder.attach.registration import process_age
from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.case import folders
from hanglab.recorder.system import procfs
from hanglab.recorder.system.host_name import host_name

#: Seconds between two looks at ranks, and between two searches for them.
LOOK_S = 2.0
SEARCH_S = 10.0
#: A watch with shorter limits, as in tests, looks so many times in the shortest.
_LOOKS = 30.0
#: For so many seconds a capture looks whether anything moves.
_CAPTURE_S = 5.0
#: Captures that run at once.
_AT_ONCE = 2
#: Looks in a row with movement after which a job that had stopped goes on: what a timeout frees
#: moves for a moment, too, before it fails.
_RESUMED = 5


@dataclass(frozen=True)
class WatchSettings:
    """``out`` is the folder of the Cases."""

    out: Path
    limits: PaceLimits = field(default_factory=PaceLimits)
    #: Ends jobs that hang once they have been captured.
    end_jobs: bool = False
    #: Looks only at jobs below this process.
    below: int | None = None
    capture_s: float = _CAPTURE_S


class WatchService:
    """One watch of one host.  ``tell`` takes events; ``say`` sentences for its log."""

    def __init__(
        self,
        settings: WatchSettings,
        tell: Callable[[WatchEvent], None],
        say: Callable[[str], None],
        retention: CaseRetention | None = None,
    ) -> None:
        self._retention = retention
        self._settings = settings
        self._tell = tell
        self._say = say
        self._finder = JobFinder(settings.below)
        self._ends = EndWatch()
        self._jobs = WatchedJobs()
        #: Whose end is awaited, by process: the job and its attempt.  A search may miss a
        #: rank that has ended before its end has been told.
        self._awaited: dict[int, tuple[WatchedJob, int]] = {}
        self._searched_s = float("-inf")
        self._busy_s = time.monotonic()
        self._said: dict[str, float] = {}
        #: Pauses that a closer look showed to be none of a hang.
        self.suspicions = 0
        shortest = min(settings.limits.still_s, settings.limits.busy_s)
        self._look_s = min(LOOK_S, shortest / _LOOKS)
        self._search_s = min(SEARCH_S, shortest / 4)

    @property
    def jobs(self) -> Sequence[dict[str, Any]]:
        """Jobs that have ranks here, as metrics show them."""
        return [
            {
                "job": job.found.name,
                "ranks": len(job.readers),
                "stopped": job.stopped,
                "pause_s": job.pace.pace.pause_s,
                "limit_s": job.pace.pace.limit_s,
            }
            for job in self._jobs
            if job.readers
        ]

    def idle_s(self, now_s: float) -> float:
        """Seconds for which no job has had ranks here; ``now_s`` is monotonic."""
        return now_s - self._busy_s

    def run(self, over: Callable[[], bool]) -> None:
        """Watches until ``over``; what fails is said, and the watch goes on."""
        due_s = time.monotonic()
        try:
            while not over():
                for end in self._ends.wait(max(0.0, due_s - time.monotonic())):
                    self._trying(lambda end=end: self._take_end(end))  # type: ignore[misc]
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + self._look_s
                    self._trying(self._look)
        finally:
            self._ends.close()
            for job in self._jobs:
                captured = job.capture is not None
                job.close()
                if captured:
                    self._say(f"{job.found.name}: its capture was ended with the watch")

    def _trying(self, what: Callable[[], None]) -> None:
        try:
            what()
        except HanglabError as error:
            self._say_once(f"{error} {error.advice}")
        except Exception as error:
            self._say_once(f"a look failed with {type(error).__name__}: {error}")

    def _say_once(self, text: str) -> None:
        """Say a sentence, the same one at most once in ten minutes."""
        now = time.monotonic()
        if now - self._said.get(text, float("-inf")) > 600.0:
            if len(self._said) > 1000:
                self._said.clear()
            self._said[text] = now
            self._say(text)

    # Looking.

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._searched_s >= self._search_s:
            self._searched_s = now_s
            self._search(now_s)
            if self._retention is not None:
                self._retention.look()
        for job in self._jobs:
            if job.readers:
                self._look_at(job)
            self._conclude(job)

    def _search(self, now_s: float) -> None:
        found = self._finder.look()
        if found or any(job.capture is not None for job in self._jobs):
            self._busy_s = now_s
        for one in found:
            job = self._jobs.take(one)
            if job is None:
                age_s = max((process_age(pid) or 0.0 for pid in one.ranks), default=0.0)
                pace = JobPauses(self._settings.limits, now_s, age_s, elsewhere=one.elsewhere)
                job = self._jobs.add(WatchedJob(one, pace))
                self._say(f"{one.name}: {len(one.ranks)} ranks here are watched")
            job.pace.expect(one.elsewhere)
            self._follow(job)
        self._jobs.keep({one.key for one in found}, now_s)

    def _follow(self, job: WatchedJob) -> None:
        """Readers for ranks that have come; an attempt of new ranks alone begins anew."""
        ranks = job.found.ranks
        fresh = ranks.keys() - job.readers.keys()
        if fresh and len(fresh) == len(ranks):
            anew = job.attempt or job.failed_attempt >= 0 or job.gone_s is not None
            attempt = max(rank.attempt for rank in ranks.values())
            job.attempt = max(attempt, job.attempt + 1) if anew else attempt
            job.stopped = False
        for pid in job.readers.keys() - ranks.keys():
            del job.readers[pid]
        for pid in fresh:
            started = self._finder.started.get(pid)
            if started is None:
                continue
            rank = ranks[pid]
            port = procfs.environment(pid).get("MASTER_PORT", "")
            job.readers[pid] = RankReader(
                pid,
                started,
                int(port) if port.isdecimal() else None,
                _counters(job.found.case, rank),
            )
            if self._ends.add(rank) or pid in self._awaited:
                self._awaited[pid] = (job, job.attempt)
        for pid, reader in job.readers.items():
            reader.below = self._finder.below.get(pid, [])

    def _look_at(self, job: WatchedJob) -> None:
        signs = read_all(job.readers.values())
        seen = job.closer.look(job.pace) if not job.stopped else frozenset()
        job.pace.look(time.monotonic(), signs, seen)
        if job.stopped:
            # Where one moves for ever and the others wait for it, the job moves all the while.
            moves = job.pace.moved and not job.pace.stop
            job.moved_looks = job.moved_looks + 1 if moves else 0
            if job.moved_looks >= _RESUMED and signs:
                self._resume(job)
        elif job.pace.stop and job.capture is None:
            self._begin_capture(job, sorted(signs))

    def _event(self, kind: Kind, job: WatchedJob, summary: str, **more: Any) -> None:
        name, same = job.found.name, job.found.same_job
        more = {"attempt": job.attempt, "same_job": same, **more}
        self._tell(WatchEvent(kind, name, summary, **more))

    def _resume(self, job: WatchedJob) -> None:
        job.stopped = False
        job.moved_looks = 0
        words = f"{job.found.name} moves again, after it had rested for {job.rested_s:.0f} s."
        self._event("resumed", job, words)

    # Capturing.

    def _begin_capture(self, job: WatchedJob, pids: Sequence[int]) -> None:
        if sum(one.capture is not None for one in self._jobs) >= _AT_ONCE or not pids:
            return
        job.rested_s = job.pace.rested_s
        out = self._settings.out
        try:
            folders.make_private(out)
            if problem := want_of_room(out):
                self._uncaptured(job, problem)
                return
            job.capture = RunningCapture(pids, out, self._settings.capture_s, job.found.case)
        except OSError as error:
            self._uncaptured(job, f"{out} cannot be written: {error.strerror or error}")

    def _conclude(self, job: WatchedJob) -> None:
        if job.capture is None or (result := job.capture.poll()) is None:
            return
        capture, job.capture = job.capture, None
        if result.verdict is None:
            if not any(reader.alive() for reader in job.readers.values()):
                self._say(f"{job.found.name} ended while it was captured: {result.problem}")
                return
            self._uncaptured(job, result.problem)
        elif result.confirmed or (job.pace.stop == "most" and _is_slow(result)):
            self._stopped(job, result)
        else:
            self.suspicions += 1
            capture.discard()
            job.pace.forgive()
            self._say(f"{job.found.name} rested for {job.rested_s:.0f} s, and is at work")

    def _uncaptured(self, job: WatchedJob, problem: str) -> None:
        job.stopped = True
        words = (
            f"{job.found.name} has not moved for {job.rested_s:.0f} s and could not be captured: "
            f"{problem}"
        )
        self._event("not_captured", job, words, rested_s=job.rested_s)

    def _stopped(self, job: WatchedJob, result: CaptureResult) -> None:
        job.stopped = True
        verdict = result.verdict or {}
        culprits = [one for one in verdict.get("culprits") or [] if isinstance(one, int)]
        # Where two are as likely, neither host has been named.
        named = culprits if float(verdict.get("confidence") or 0.0) > TIED else []
        here = {rank.rank for rank in job.found.ranks.values()}
        cause = verdict.get("cause")
        self._event(
            "stopped",
            job,
            str(verdict.get("summary") or "The job does not move."),
            cause=str(cause) if cause else None,
            status=str(verdict.get("status") or ""),
            culprits=culprits,
            culprits_here=[rank for rank in named if rank in here],
            case=str(result.case) if result.case is not None else None,
            signature=f"{cause or 'stopped'} of rank {', '.join(map(str, culprits)) or '?'}",
            rested_s=job.rested_s,
            captured_s=result.seconds,
        )
        if self._settings.end_jobs and verdict.get("status") == "hung":
            from hanglab.harness.watching.ending_jobs import end_job

            end_job({pid: reader.started for pid, reader in job.readers.items()})
            self._say(f"{job.found.name} is ended, as --then kill asks for")

    # Ends.

    def _take_end(self, end: SeenEnding) -> None:
        job, attempt = self._awaited.pop(end.pid)
        job.readers.pop(end.pid, None)
        told = attempt <= job.failed_attempt
        if told or not end.failed or (job.stopped and self._settings.end_jobs):
            return
        job.failed_attempt = attempt
        words = f"{job.found.name}: {end.signature}"
        if end.error:
            words += f": {end.error}"
        # Who ends first may be ended by another's fault: that is for an analysis to say.
        self._event("failed", job, words, attempt=attempt, status="failed", signature=end.signature)


def _is_slow(result: CaptureResult) -> bool:
    """True if most ranks have waited for very long for others that are at work."""
    return (result.verdict or {}).get("status") in ("slow", "inconclusive")


def _counters(case: Path | None, rank: FoundRank) -> CounterFile | None:
    if case is None:
        return None
    folder = folders.rank_folder(case, host_name(), rank.rank, rank.attempt)
    with contextlib.suppress(OSError):
        return CounterFile(folder)
    return None
