"""Bytes that a rank and the processes below it read and write, as a sign that they move.

What others make them read or write is none: peers keep the store busy that a rank may
serve, and whoever looks at a file system, the recorder too, keeps its server busy.  Nor are the
lines in which a rank that asks the same again and again says that it waits, nor what its other
threads of Python, and the processes below it, do while it is in an operation: they log, watch or
upload, and its data comes by threads of the backend.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from hanglab.recorder.system import procfs

#: Seconds between two looks for threads that serve a store, while there is I/O.
_THREADS_S = 2.0
#: Bytes between two looks that only data takes: a process that serves a file system answers
#: questions after folders and room in some hundred bytes each, and reads in pieces of 128 KiB.
_DATA_BYTES = 64 * 1024
#: Bytes between two looks that a thread may write for people to read.
_TALK_BYTES = 4 * 1024

Bytes = tuple[int, int]


class IoBytes:
    """Read and written by the process ``pid`` and by those below it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, Bytes] = {}
        self._total: Bytes | None = None
        self._store_threads: list[int] = []
        self._threads_at = float("-inf")
        #: Whether the main thread polls, and its own bytes while it does.
        self._polling = False
        self._main: Bytes | None = None
        #: Of the threads that count while the rank is in an operation; None while it is not.
        self._threads: dict[int, Bytes] | None = None
        #: All that moved at the last look was as little as people read, and not the main thread's:
        #: a log, which may go on while what the rank waits for does not.
        self.talks = False

    def forget(self) -> None:
        """Compare with nothing at the next look."""
        self._seen, self._main, self._threads = {}, None, None

    def moved(
        self,
        below: Sequence[int],
        polling: bool = False,
        idle_threads: Collection[int] | None = None,
    ) -> bool:
        """True if there was any since the last look; ``below`` are the processes below.

        ``polling``: the main thread asks the same again and again, and what it says is no
        movement; what it reads meanwhile, and data that it writes, are.  ``idle_threads``: it is
        in an operation, which these threads and the processes below bring no further.
        """
        self.talks = False
        if polling != self._polling:
            self.forget()
            self._polling = polling
        if idle_threads is not None:
            return self._moved_in_operation(idle_threads)
        if self._threads is not None:
            self.forget()
        then_main = self._main
        now = {}
        for pid in (self._pid, *below):
            found = self._of(pid)
            if found is not None:
                now[pid] = found
        main, data = self._main, False
        if then_main is not None and main is not None:
            # Who says that it waits reads nothing for it: a server of requests does.
            said = _TALK_BYTES if polling else 0
            data = main[0] > then_main[0] or main[1] > then_main[1] + said
        # A process that came or went is no movement by itself; bytes are.  Those of a store
        # are known a little too high or too low where it is busy: only growth counts.
        both = now.keys() & self._seen.keys()
        moved = any(self._is_movement(pid, self._seen[pid], now[pid]) for pid in both)
        grown = sum(max(0, _grown(self._seen[pid], now[pid])) for pid in both)
        self.talks = moved and not data and grown <= _TALK_BYTES
        for pid in both:
            then = self._seen[pid]
            now[pid] = max(now[pid][0], then[0]), max(now[pid][1], then[1])
        self._seen = now
        return moved or data

    def _moved_in_operation(self, idle_threads: Collection[int]) -> bool:
        """True if the main thread, or one of the backend, has read or written anything."""
        total, then = procfs.io_bytes(self._pid), self._threads
        if then is not None and (total is None or total == self._total):
            return False
        self._seen, self._main, self._total = {}, None, total
        idle = {*idle_threads, *procfs.store_threads(self._pid)}
        own = [tid for tid in procfs.threads(self._pid) if tid not in idle]
        self._threads = {tid: procfs.thread_io_bytes(self._pid, tid) for tid in own}
        grown = {
            tid: now
            for tid, now in self._threads.items()
            if then is not None and tid in then and _grown(then[tid], now) > 0
        }
        if self._polling and then is not None and self._pid in grown:
            read, written = grown.pop(self._pid)
            if read > then[self._pid][0] or written > then[self._pid][1] + _TALK_BYTES:
                return True
        return bool(grown)

    def _is_movement(self, pid: int, then: Bytes, now: Bytes) -> bool:
        grown = _grown(then, now)
        if grown <= 0:
            return False
        return grown > _DATA_BYTES or pid == self._pid or not self._serves_files(pid)

    def _serves_files(self, pid: int) -> bool:
        """True if a process below serves a file system; what it has from the rank says nothing."""
        return procfs.serves_files(pid) and not procfs.serves_files(self._pid)

    def _of(self, pid: int) -> Bytes | None:
        """Bytes of a process, without those of the store that it may keep for its peers.

        Peers that wait at the store ask it again and again.
        """
        found = procfs.io_bytes(pid)
        if found is None or pid != self._pid:
            return found
        if found != self._total and time.monotonic() - self._threads_at > _THREADS_S:
            self._threads_at = time.monotonic()
            self._store_threads = procfs.store_threads(pid)
        self._total = found
        for tid in self._store_threads:
            read, written = procfs.thread_io_bytes(pid, tid)
            found = found[0] - read, found[1] - written
        # After the whole: what it says in between must not count as another thread's.
        self._main = procfs.thread_io_bytes(pid, pid)
        if self._polling:
            found = found[0] - self._main[0], found[1] - self._main[1]
        return found


def _grown(then: Bytes, now: Bytes) -> int:
    return max(now[0] - then[0], now[1] - then[1])
