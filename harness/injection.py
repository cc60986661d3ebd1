"""Letting the declared faults strike: the ranks' progress files say when."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.harness.faults.conditions import Seen
from hanglab.harness.faults.fault import Fault
from hanglab.recorder.case import folders
from hanglab.recorder.case.progress import Counters, NotProgress, read_counters

#: More than the counters take at the beginning of a progress file.
_HEAD_BYTES = 512


@dataclass
class Strike:
    """A declared fault and what came of it."""

    fault: Fault
    #: Wall clock, nanoseconds; None where it did not strike.
    at_ns: int | None = None
    pid: int | None = None
    #: What the struck rank's progress file said just before.
    step: int | None = None
    operations: int | None = None
    #: Why it could not strike.
    failure: str = ""

    @property
    def struck(self) -> bool:
        return self.at_ns is not None

    def describe(self) -> str:
        why = self.failure or "the job ended, or stood still, before its moment"
        return f"{self.fault.describe()} ({why})"


class Injector:
    """Watches one job and strikes each fault once, when its condition holds."""

    def __init__(self, faults: Sequence[Fault], case: Path, world_size: int) -> None:
        self.strikes = [Strike(fault) for fault in faults]
        self._progress = _ProgressFiles(case, world_size)
        self._world_size = world_size
        self._complete_since: float | None = None
        self._clear_up: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        return any(not strike.struck and not strike.failure for strike in self.strikes)

    def poll(self, pids: Mapping[int, int]) -> None:
        """Looks once; ``pids`` are the processes of the ranks that live."""
        if not self.pending:
            return
        seen = {
            rank: Seen(counters.step, counters.operations_total)
            for rank, counters in self._progress.read().items()
        }
        now = time.monotonic()
        if self._complete_since is None and len(seen) >= self._world_size:
            self._complete_since = now
        elapsed = now - self._complete_since if self._complete_since is not None else -1.0
        for strike in self.strikes:
            if strike.struck or strike.failure:
                continue
            if strike.fault.condition.holds(seen, elapsed):
                self._strike(strike, pids, seen)

    def _strike(self, strike: Strike, pids: Mapping[int, int], seen: Mapping[int, Seen]) -> None:
        rank = strike.fault.rank
        pid = pids.get(rank)
        if pid is None:
            strike.failure = f"rank {rank} had ended"
            return
        try:
            clear_up = strike.fault.strike(pid)
        except OSError as failure:
            strike.failure = f"{failure.strerror or failure}: process {pid}"
            return
        if clear_up is not None:
            self._clear_up.append(clear_up)
        strike.at_ns = time.time_ns()
        strike.pid = pid
        if rank in seen:
            strike.step = seen[rank].step
            strike.operations = seen[rank].operations

    def close(self) -> None:
        while self._clear_up:
            self._clear_up.pop()()
        self._progress.close()


class _ProgressFiles:
    """The progress files of a job's ranks, kept open."""

    def __init__(self, case: Path, world_size: int) -> None:
        self._hosts = case / folders.HOSTS
        self._world_size = world_size
        self._files: dict[int, int] = {}

    def read(self) -> dict[int, Counters]:
        """Counters of every rank that has a progress file by now."""
        if len(self._files) < self._world_size:
            self._open_new()
        counters = {}
        for rank, fd in self._files.items():
            with contextlib.suppress(NotProgress, OSError):
                counters[rank] = read_counters(os.pread(fd, _HEAD_BYTES, 0))
        return counters

    def _open_new(self) -> None:
        for path in self._hosts.glob(f"*/{folders.RANKS}/*/{folders.PROGRESS}"):
            parsed = folders.parse_rank_folder(path.parent.name)
            if parsed is not None and parsed[0] not in self._files:
                with contextlib.suppress(OSError):
                    self._files[parsed[0]] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
