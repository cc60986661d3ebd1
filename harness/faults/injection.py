"""Letting the declared faults strike: the ranks' progress files say when."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanglab.harness.faults.conditions import FromTheStart, ProgressSeen
from hanglab.harness.faults.fault import Fault
from hanglab.harness.faults.host_fault import HostFault
from hanglab.harness.faults.proof import Reading, Watch, look_until
from hanglab.harness.hosts import Hosts, NotYet
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.progress import Counters, NotProgress, read_counters
from hanglab.recorder.system import procfs

#: How long it may take until things are as before the fault, in seconds.
_MENDED_S = 10.0
#: Pause before a fault is tried again whose target was not there yet, in seconds.
_AGAIN_S = 0.05
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
    #: When it was taken back, or over; None where it lasts until its process is ended.
    ended_ns: int | None = None
    #: What a probe saw of it, and of its end; None where the fault has none.
    proof: Reading | None = None
    end_proof: Reading | None = None

    @property
    def struck(self) -> bool:
        """True if it was done, and by its probe did something."""
        return self.at_ns is not None and (self.proof is None or self.proof.proved)

    @property
    def remains(self) -> str:
        """The reason that the fault cannot be said to have ended; empty where it has."""
        if self.at_ns is None or self.end_proof is None or self.end_proof.proved:
            return ""
        return f"{self.fault.describe()} did not end: {self.end_proof.words}"

    def describe(self) -> str:
        why = self.failure or "the job ended, or stood still, before its moment"
        if self.at_ns is not None and self.proof is not None:
            why = f"its probe says: {self.proof.words}"
        return f"{self.fault.describe()} ({why})"


class Injector:
    """Watches one job and strikes each fault once, when its condition holds."""

    def __init__(self, faults: Sequence[Fault], case: Path, world_size: int) -> None:
        self.strikes = [Strike(fault) for fault in faults]
        self._progress = _ProgressFiles(case, world_size)
        self._world_size = world_size
        self._complete_since: float | None = None
        self._clear_up: list[Callable[[], None]] = []
        self._watches: list[tuple[Strike, Watch]] = []
        self._undo: list[tuple[Strike, Callable[[], None]]] = []
        #: Not before (monotonic): what a fault needs was not there yet.
        self._again = 0.0

    @property
    def pending(self) -> bool:
        return any(strike.at_ns is None and not strike.failure for strike in self.strikes)

    def poll(self, pids: Mapping[int, int], hosts: Hosts) -> None:
        """Looks once; ``pids`` are the processes of the ranks that live on ``hosts``."""
        if not self.pending or time.monotonic() < self._again:
            return
        seen = {
            rank: ProgressSeen(counters.step, counters.operations_total)
            for rank, counters in self._progress.read().items()
        }
        now = time.monotonic()
        if self._complete_since is None and len(seen) >= self._world_size:
            self._complete_since = now
        elapsed = now - self._complete_since if self._complete_since is not None else -1.0
        for strike in self.strikes:
            if strike.at_ns is not None or strike.failure:
                continue
            if strike.fault.condition.holds(seen, elapsed):
                self._strike(strike, pids, seen, hosts)

    def _strike(
        self,
        strike: Strike,
        pids: Mapping[int, int],
        seen: Mapping[int, ProgressSeen],
        hosts: Hosts,
    ) -> None:
        rank = strike.fault.rank
        try:
            if isinstance(strike.fault, HostFault):
                self._strike_host(strike, strike.fault, hosts)
            else:
                gone = sorted(one for one in strike.fault.ranks if one not in pids)
                if gone:
                    strike.failure = f"rank {gone[0]} had ended"
                    return
                self._strike_processes(strike, pids)
        except NotYet:
            self._again = time.monotonic() + _AGAIN_S
            return
        except OSError as failure:
            where = f": process {strike.pid}" if strike.pid is not None else ""
            strike.failure = f"{failure.strerror or failure}{where}"
            return
        if rank in seen:
            strike.step = seen[rank].step
            strike.operations = seen[rank].operations

    def _strike_processes(self, strike: Strike, pids: Mapping[int, int]) -> None:
        strike.pid = pids[strike.fault.rank]
        probe = strike.fault.probe_of(pids)
        clear_up = strike.fault.strike_among(pids)
        if clear_up is not None:
            self._clear_up.append(clear_up)
        strike.at_ns = time.time_ns()
        if probe is not None:
            self._watches.append((strike, Watch(probe)))

    def _strike_host(self, strike: Strike, fault: HostFault, hosts: Hosts) -> None:
        hosts.of_rank(fault.rank)  # refused where it is this machine, which others use too
        # Watched before it strikes: a rank may run into it, and be gone, while it is being done.
        watch = Watch(fault.probe(hosts))
        begun = time.time_ns()
        try:
            undo = fault.strike_host(hosts)
        except BaseException:
            watch.stop()
            raise
        strike.at_ns = begun
        self._watches.append((strike, watch))
        if undo is not None:
            self._undo.append((strike, undo))

    def told(self, number: int, found: Mapping[str, Any]) -> None:
        """Takes over what a node says of a fault that strikes there: the fields of its Strike."""
        strike = self.strikes[number]
        for name, value in found.items():
            reading = name in ("proof", "end_proof") and value is not None
            setattr(strike, name, Reading(**value) if reading else value)

    def begin(self, hosts: Hosts) -> None:
        """Strikes what has to be there before any rank begins."""
        for strike in self.strikes:
            fault = strike.fault
            if isinstance(fault, HostFault) and isinstance(fault.condition, FromTheStart):
                self._strike(strike, {}, {}, hosts)

    def end(self, hosts: Hosts) -> None:
        """Takes the faults of hosts back, and has it proved that they struck and ended.

        To be called when the ranks have ended: they must not go on, and write
        what happens then to the Case, when they are let go.
        """
        for strike, watch in self._watches:
            strike.proof = watch.close()
        _end_remains(hosts)
        while self._undo:
            strike, undo = self._undo.pop()
            try:
                undo()
            except OSError as failure:
                strike.end_proof = Reading(False, f"{failure.strerror or failure}")
            strike.ended_ns = time.time_ns()
        for strike, watch in self._watches:
            if strike.end_proof is None:
                strike.end_proof = look_until(watch.probe.ended, _MENDED_S)
            if strike.ended_ns is None:  # nothing to take back: over with its moment
                strike.ended_ns = strike.at_ns
        self._watches.clear()

    def close(self) -> None:
        """Clears up, also where the job was given up in between."""
        for strike, watch in self._watches:
            strike.proof = watch.close()
        self._watches.clear()
        while self._undo:
            with contextlib.suppress(OSError):
                self._undo.pop()[1]()
        while self._clear_up:
            self._clear_up.pop()()
        self._progress.close()


def _end_remains(hosts: Hosts) -> None:
    """Ends hosts on which a rank still lives: nobody could tell it to end, as on a frozen one."""
    for host in hosts.values():
        for rank in host.ranks:
            with contextlib.suppress(OSError):
                left = procfs.stat(hosts.process_of(rank))
                if left is not None and left.state not in "ZX":
                    os.kill(host.pid, signal.SIGKILL)
                    break


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
        for path in self._hosts.glob(f"*/{folders.RANKS}/*/{files.PROGRESS.name}"):
            parsed = folders.parse_rank_folder(path.parent.name)
            if parsed is not None and parsed[0] not in self._files:
                with contextlib.suppress(OSError):
                    self._files[parsed[0]] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
