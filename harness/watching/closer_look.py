"""Closer looks at ranks that compute while nothing of them moves: the functions on their stacks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from hanglab.harness.watching.job_pace import JobPauses
from hanglab.recorder.attach.registration import python_of
from hanglab.recorder.case.user_code import UserCode
from hanglab.recorder.system.stacks import NoStacks, Position, position, threads_of

#: Shares of a pause's limit at which stacks are compared; py-spy takes 0.1 to 0.3 s of processor
#: time a rank, and reads without stopping anybody.
CLOSER_AT = (0.5, 0.66, 0.82)
#: Ranks that are looked at: in a job whose ranks all compute these speak for all.
_MOST = 2


class CloserLook:
    """Samples of one job's pause.  They are taken beside the watch, by a thread."""

    def __init__(self) -> None:
        self._rounds = 0
        self._seen: dict[int, Position] = {}
        self._pending: Future[dict[int, Position]] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._code: dict[int, Callable[[str], bool]] = {}

    def look(self, pace: JobPauses) -> frozenset[int]:
        """Ranks that were seen to do something else than at the last sample of this pause."""
        doubtful = pace.doubtful
        if not doubtful:
            self._rounds = 0
            self._seen.clear()
        if self._pending is not None:
            if not self._pending.done():
                return frozenset()
            now, self._pending = self._pending.result(), None
            moved = {pid for pid, at in now.items() if self._seen.get(pid, at) != at}
            self._seen.update(now)
            return frozenset(moved if doubtful else ())
        if doubtful and self._rounds < len(CLOSER_AT):
            if pace.pace.pause_s >= CLOSER_AT[self._rounds] * pace.pace.limit_s:
                self._rounds += 1
                self._pool = self._pool or ThreadPoolExecutor(1, "hanglab-watch")
                self._pending = self._pool.submit(self._positions, doubtful[:_MOST])
        return frozenset()

    def _positions(self, pids: list[int]) -> dict[int, Position]:
        found = {}
        for pid in pids:
            if pid not in self._code:
                python = python_of(pid)
                self._code[pid] = UserCode(python.stdlib, python.site, python.own)
            try:
                # As of a stopped one: it must not be paused.
                found[pid] = position(threads_of(pid, stopped=True), self._code[pid])
            except NoStacks:
                continue
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
