"""Deciding whether a job has stopped moving.

A rank moves when its step, section or operation counters, its I/O bytes (data on
its connections included) or the user functions on its stack change.  CPU time
alone is not movement, nor is what threads and processes beside it read and write
while it is in an operation.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from hanglab.recorder.agent.external_traffic import Downloads
from hanglab.recorder.agent.remote_ranks import RemoteRanks
from hanglab.recorder.agent.samples import rank_stacks
from hanglab.recorder.agent.watched_rank import WatchedRank, find_ranks
from hanglab.recorder.case.records import StackSample
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import NoStacks, position

#: Seconds between two looks at the ranks.
POLL = 0.05
#: A pause counts as a hang only if it is this many times the longest one before it.
_PAUSE_FACTOR = 5.0
_PAUSE_LIMIT = 60.0
#: Before the first operation ranks import and prepare.
_PREPARING_FACTOR = 3.0
#: A rank that computes all the time may be in one long native call.
_BUSY_SHARE = 0.8
_BUSY_FACTOR = 3.0
_BUSY_PAUSE_FACTOR = 10.0
#: One that stands at a single call all the while, with nothing outstanding, most likely is.
#: So is one that waits for a process of its own that computes: a build, a loader's worker.
_NATIVE_FACTOR = 10.0
#: So many thresholds long a log that is written beside a rank's main thread counts as movement:
#: as long as work of processes for which it waits.
_TALK_FACTOR = _NATIVE_FACTOR
#: To take down an interpreter with torch in it needs a second of processor time and many
#: pages that others may have pushed out.
_ENDING_FACTOR = 10.0
_ENDING_LEAST = 30.0
#: On a crowded host so many thresholds of waiting for a processor are no rest; a rank that still
#: has none after them hangs, whoever keeps it away.
_DELAYED_FACTOR = 10.0
#: Seconds for which a rank that was seen at it counts as still being taken down.
_ENDING_MEMORY = 2.0
#: Seconds of rest from which on connections are looked at.
_RESTED = 0.3
#: Shares of the threshold at which stacks are compared.
_SAMPLE_AT = (0.5, 0.66, 0.82)


class Watcher:
    """All ranks of one host.  ``look`` is to be called every POLL seconds."""

    def __init__(
        self,
        host_folder: Path,
        runtime: Path,
        hang_after: float,
        first_attempt: int = 0,
    ) -> None:
        self._host_folder = host_folder
        self._first_attempt = first_attempt
        self._elsewhere: RemoteRanks | None = None
        self._runtime = runtime
        self._hang_after = hang_after
        self.ranks: list[WatchedRank] = []
        self.quiet_s = 0.0
        self.longest_pause_s = 0.0
        #: Seconds of the present rest for which some rank waited for a processor.
        self._delayed_s = 0.0
        self._last_look = time.monotonic()
        self._last_census = 0.0
        self._pool = ThreadPoolExecutor(4, "hanglab-agent")
        self._downloads = Downloads()
        self._sampling: list[tuple[WatchedRank, Future[StackSample]]] = []
        self._rounds = 0
        self._ending_seen = float("-inf")
        #: Whether a rank that still runs moved at the last look.
        self.moved = False

    @property
    def alive(self) -> list[WatchedRank]:
        return [rank for rank in self.ranks if not rank.gone and rank.exit is None]

    @property
    def begun(self) -> bool:
        if self._elsewhere is not None and self._elsewhere.begun:
            return True
        return any(rank.begun for rank in self.ranks)

    def see_others(self, elsewhere: RemoteRanks) -> None:
        """Watch the job's ranks on other hosts, too: it rests when they do as well."""
        self._elsewhere = elsewhere

    def discover(self) -> list[WatchedRank]:
        """Ranks that have registered since the last call.  A later attempt replaces an earlier."""
        known = {rank.folder for rank in self.ranks}
        new = find_ranks(self._host_folder, known, self._first_attempt)
        for rank in new:
            rank.patience_s = _TALK_FACTOR * self._hang_after
        if new:
            self.ranks += new
            self.quiet_s = 0.0
        return new

    def adopt(self, rank: WatchedRank) -> None:
        """Watch a rank that was found otherwise."""
        rank.patience_s = _TALK_FACTOR * self._hang_after
        self.ranks.append(rank)
        self.quiet_s = 0.0

    def forget_rest(self) -> None:
        """Take whatever comes next for movement: samples so far count no longer."""
        self.quiet_s = 0.0
        self._rounds = 0

    def find(self, rank: int, attempt: int) -> WatchedRank | None:
        """The rank, if it has registered."""
        for watched in self.ranks:
            if (watched.rank, watched.attempt) == (rank, attempt):
                return watched
        return None

    def look(self) -> None:
        """Look at every rank once, and compare their stacks when the time has come."""
        now = time.monotonic()
        # A host so starved that the agent itself does not run must not look like a hang.
        seconds = min(now - self._last_look, 2 * POLL)
        self._last_look = now
        alive = self.alive
        # With no one else moving it matters what the processes below the ranks do.
        if self.quiet_s > 0.1 and now - self._last_census > 0.5:
            self.take_census()
        begun = self.begun
        moved = [rank for rank in alive if rank.look(seconds, learn=begun)]
        moved += self._compare_stacks(begun)
        self.moved = any(not rank.gone for rank in moved)
        if self._elsewhere is not None and self._elsewhere.moved():
            self.moved = True
        if moved or self.moved:
            self._rest_ends(begun)
            self._downloads.forget()
        elif alive and self._downloading(alive):
            self.moved = True
            # What it was seen by took its time: the job itself made no pause.
            self._rest_ends(learn=False)
        elif alive:
            self._rest(alive, seconds)
            if self.quiet_s > 0.1:
                for rank in alive:
                    rank.cpu_share(now)
            self._sample_stacks()

    def take_census(self) -> None:
        """Look up the processes below each rank."""
        self._last_census = time.monotonic()
        below = procfs.descendants([rank.pid for rank in self.alive])
        for rank in self.alive:
            rank.note_census(below.get(rank.pid, []), self._last_census)

    def threshold(self) -> float:
        """Seconds without movement after which the job counts as hung."""
        pause = min(_PAUSE_FACTOR * self.longest_pause_s, _PAUSE_LIMIT)
        threshold = max(self._hang_after, pause)
        now = time.monotonic()
        for rank in self.alive:
            if self.quiet_s < threshold / 2:
                continue
            below = rank.share_below(now) >= _BUSY_SHARE
            if below or rank.cpu_share(now) >= _BUSY_SHARE:
                native = below or rank.inside_native_code
                factor = _NATIVE_FACTOR if native else _BUSY_FACTOR
                threshold = max(
                    threshold,
                    factor * self._hang_after,
                    _BUSY_PAUSE_FACTOR * rank.longest_pause_s,
                )
        if self.quiet_s >= threshold / 2 and any(rank.ending for rank in self.alive):
            self._ending_seen = now
        if now - self._ending_seen < _ENDING_MEMORY:
            threshold = max(threshold, _ENDING_FACTOR * self._hang_after, _ENDING_LEAST)
        return threshold if self.begun else threshold * _PREPARING_FACTOR

    def hung(self) -> bool:
        """True if nothing has moved for long enough, stacks included."""
        return (
            bool(self.alive)
            and self.quiet_s >= self.threshold()
            and self._rounds >= len(_SAMPLE_AT)
            and not self._sampling
        )

    def _rest(self, alive: list[WatchedRank], seconds: float) -> None:
        """Count a time without movement, but for a rank that got no chance to move."""
        delayed = any(rank.delayed for rank in alive)
        if delayed and self._delayed_s < _DELAYED_FACTOR * self._hang_after:
            self._delayed_s += seconds
        else:
            self.quiet_s += seconds

    def _downloading(self, alive: list[WatchedRank]) -> bool:
        """True if one of them moves data from or to somebody outside the job."""
        # Of other hosts' ranks nobody knows here which connections are theirs.
        if self._elsewhere is not None or self.quiet_s < _RESTED:
            return False
        # What somebody in an operation waits for comes from the job.
        moved = self._downloads.moved([r.family for r in alive if r.idle_threads is None])
        for rank in alive:
            if rank.pid in moved:
                rank.rest_ends("io", learn=False)
        return bool(moved)

    def _rest_ends(self, learn: bool) -> None:
        if learn:
            self.longest_pause_s = max(self.longest_pause_s, self.quiet_s)
        self.quiet_s = 0.0
        self._delayed_s = 0.0
        self._rounds = 0

    def _sample_stacks(self) -> None:
        if self._sampling or self._rounds >= len(_SAMPLE_AT):
            return
        if self.quiet_s >= _SAMPLE_AT[self._rounds] * self.threshold():
            self._rounds += 1
            self._sampling = [
                (rank, self._pool.submit(rank_stacks, rank, self._runtime, False))
                for rank in self.alive
            ]

    def _compare_stacks(self, begun: bool) -> list[WatchedRank]:
        """Ranks whose user functions have changed between two samples of one quiet time."""
        if not self._sampling or not all(future.done() for _, future in self._sampling):
            return []
        moved = []
        for rank, future in self._sampling:
            try:
                sample = future.result()
            except NoStacks:
                continue
            where = position(sample.threads, rank.user_code)
            if rank.position is not None and where != rank.position:
                rank.rest_ends("stack", begun)
                moved.append(rank)
            rank.position = where
            rank.note_sample(sample)
        self._sampling = []
        return moved

    def close(self) -> None:
        if self._elsewhere is not None:
            self._elsewhere.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
