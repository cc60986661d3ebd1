"""Capturing: taking everything that can be had of every rank, once, quickly."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hanglab.recorder.agent import condition_values, snapshots, stderr_files
from hanglab.recorder.agent.descriptor_waits import descriptor_waits
from hanglab.recorder.agent.host.sampler import HostSampler
from hanglab.recorder.agent.rank_request import NoReply, ask
from hanglab.recorder.agent.samples import (
    MOST_DESCENDANTS,
    child_stacks,
    file_lock_waits,
    kind_of,
    process_samples,
    rank_stacks,
    socket_of,
)
from hanglab.recorder.agent.sources import source_functions
from hanglab.recorder.agent.torch_dumps import TorchDumps
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.file_kinds import JsonLines
from hanglab.recorder.case.reader import RankCase
from hanglab.recorder.case.records import Absence, ChildExit, Exit, SourceFunction, StackSample
from hanglab.recorder.case.writer import clock, write, write_tail
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import NoStacks, native_threads_of

Record = TypeVar("Record")

#: Seconds within which a rank must have written its buffer, and then the one with stacks.
_BUFFER_DEADLINE = 1.5
_STACKS_DEADLINE = 4.0
#: A recorder thread that has not run for this long hardly answers: it gets less time.
_STALE_HEARTBEAT_NS = 1_000_000_000
_STALE_DEADLINE = 0.5
#: Seconds for all that did not answer together, in which a thread that runs at all shows it: it is
#: to run each 0.2 s, and many may ask for the processors.
_LATE_S = 2.0
_LATE_DEADLINES = (6.0, 9.0)


#: Set to 1, this name of the environment asks for native frames as well.
NATIVE = "HANGLAB_NATIVE"


class Capture:
    """One capture of all ranks of this host.  Never raises; what failed stands in ``absent``."""

    def __init__(self, host: str, runtime: Path, dumps: TorchDumps | None = None) -> None:
        self._host = host
        self._runtime = runtime
        self._dumps = dumps or TorchDumps(None, None)
        self._native = os.environ.get(NATIVE) == "1"
        self.absent: list[Absence] = []
        #: Ranks that were asked for their buffer and did not answer, why, and their heartbeat then.
        self._unanswered: dict[WatchedRank, tuple[str, int | None]] = {}

    def take(
        self,
        ranks: Iterable[WatchedRank],
        host: HostSampler | None = None,
        gone: Iterable[WatchedRank] = (),
    ) -> None:
        """``ranks`` are those that still run; their descendants must have been looked up.

        ``gone`` are those that do not: what they shared with others is not the others' own.
        """
        ranks, gone = list(ranks), list(gone)
        self._unanswered.clear()
        shared = stderr_files.shared_files([*ranks, *gone])
        now = time.monotonic()
        if host is not None:
            host.ask()
        for rank in ranks:
            # Before the capture itself makes them busy.
            self._write(rank, files.MOVEMENT.name, self._write_movement, now)
            self._write(rank, files.PROCESSES.name, self._write_processes)
            self._write(rank, files.PROGRESS.snapshot_name, self._keep_mapped)
        locks, descriptors = file_lock_waits(ranks), descriptor_waits(ranks)
        for rank in ranks:
            self._write(rank, files.FILE_LOCKS.name, self._write_rows, files.FILE_LOCKS, locks)
            self._write(
                rank,
                files.DESCRIPTOR_WAITS.name,
                self._write_rows,
                files.DESCRIPTOR_WAITS,
                descriptors,
            )
        if ranks:
            with ThreadPoolExecutor(4, "hanglab-capture") as pool:
                for future in [pool.submit(self._take_one, rank) for rank in ranks]:
                    future.result()
                late = [pool.submit(self._dump_late, rank) for rank in self._running_late()]
                for future in late:
                    future.result()
        for rank, (reason, _) in self._unanswered.items():
            self.miss(files.FLIGHT_RECORDER.name, reason, rank.rank)
        for rank in ranks:
            self._write(rank, files.PROCESSES.name, self._write_processes)
            self._write(rank, files.CHILDREN.name, self._write_dead_children)
            self._write(rank, files.STDERR.name, self._write_stderr, shared)
        if self._native:
            # Last, as it takes longest and changes nothing of the rest.
            for rank in ranks:
                self._write(rank, files.NATIVE_STACKS.name, self._write_native)
        self._write_sources([*ranks, *gone], ranks)
        if host is not None:
            host.wait()

    def _write_sources(self, ranks: list[WatchedRank], running: list[WatchedRank]) -> None:
        if not ranks:
            return
        functions = source_functions(ranks)
        try:
            write(ranks[0].folder.parent.parent, files.SOURCES, functions)
        except OSError as error:
            self.miss(files.SOURCES.name, f"could not be written: {error.strerror or error}")
        for rank in running if condition_values.are_wanted() else ():
            self._write(rank, files.LOCALS.name, self._write_locals, functions)

    def _write_locals(self, rank: WatchedRank, functions: list[SourceFunction]) -> None:
        try:
            values = condition_values.condition_values(rank, functions)
        except NoStacks as reason:
            self.miss(files.LOCALS.name, str(reason), rank.rank)
        else:
            write(rank.folder, files.LOCALS, values)

    def miss(self, what: str, reason: str, rank: int | None = None) -> None:
        absence = Absence(what, reason, self._host, rank)
        if absence not in self.absent:
            self.absent.append(absence)

    def miss_what_ended(self, rank: WatchedRank) -> None:
        """Evidence that a rank took with it that had ended when the others were captured."""
        if rank.exit is None or rank.exit.by_recorder:
            return
        for what in (files.FLIGHT_RECORDER.name, files.STACKS.name, files.PROCESSES.name):
            if not (rank.folder / what).exists() and not any(
                (absence.what, absence.rank) == (what, rank.rank) for absence in self.absent
            ):
                self.miss(what, f"the process {told(rank.exit)} before the capture", rank.rank)

    def _write(
        self, rank: WatchedRank, what: str, write: Callable[..., None], *arguments: object
    ) -> None:
        try:
            write(rank, *arguments)
        except OSError as error:
            self.miss(what, f"could not be written: {error.strerror or error}", rank.rank)

    def _take_one(self, rank: WatchedRank) -> None:
        beat = rank.heartbeat_ns()
        refusal = self._dump(rank, beat)
        if refusal and self._dumps.ask(rank) is not None and self._dumps.keep(rank, force=True):
            refusal = ""
        self._keep(rank)
        samples = self._stacks(rank)
        if refusal:
            self._unanswered[rank] = (_explained(refusal, samples), beat)
        try:
            write(rank.folder, files.STACKS, [*rank.samples, *samples])
        except OSError as error:
            self.miss(files.STACKS.name, f"could not be written: {error.strerror}", rank.rank)

    def _keep(self, rank: WatchedRank) -> None:
        # Now it says which operations have finished that nobody has waited for yet.
        self._write(rank, files.PROGRESS.snapshot_name, self._keep_mapped)
        self._write(rank, files.FLIGHT_RECORDER.snapshot_name, self._keep_documents)

    def _dump(self, rank: WatchedRank, beat: int | None) -> str:
        """Have the rank write its buffer; the reason if it did not, else ""."""
        stat = rank.stat()
        if stat is None or stat.state in "ZX":
            return "the process has ended"
        if rank.outside and rank.counters is None:
            return "the rank has no recorder of its own"
        if stat.state in "Tt":
            return f"the process is stopped (state {stat.state})"
        deadlines = [_BUFFER_DEADLINE, _STACKS_DEADLINE]
        if beat is not None and time.monotonic_ns() - beat > _STALE_HEARTBEAT_NS:
            deadlines[0] = _STALE_DEADLINE
        refusal = self._ask(rank, deadlines)
        if refusal and stat.state == "D":
            # Asked all the same: it is its main thread that sleeps, and maybe for a moment.
            where = procfs.wchan(rank.pid)
            return f"the process sleeps uninterruptibly (state D) in {where or 'the kernel'}"
        return refusal

    def _ask(self, rank: WatchedRank, deadlines: Iterable[float]) -> str:
        answered = 0
        try:
            for answer in ask(socket_of(rank, self._runtime), "dump", list(deadlines)):
                answered += 1
                for problem in answer.get("problems", []):
                    what, _, reason = str(problem).partition(": ")
                    self.miss(what, reason, rank.rank)
        except NoReply as reason:
            if answered == 0:
                return str(reason)
            self.miss(files.FLIGHT_RECORDER_STACKS.name, str(reason), rank.rank)
        return ""

    def _running_late(self) -> list[WatchedRank]:
        """Ranks that did not answer, and whose recorder's thread has run since."""
        waiting = [
            rank
            for rank, (_, beat) in self._unanswered.items()
            if beat is not None and (stat := rank.stat()) and stat.state not in "ZXTt"
        ]
        late: list[WatchedRank] = []
        until = time.monotonic() + _LATE_S
        while waiting and time.monotonic() < until:
            late += [rank for rank in waiting if rank.heartbeat_ns() != self._unanswered[rank][1]]
            waiting = [rank for rank in waiting if rank not in late]
            time.sleep(0.05)
        return late

    def _dump_late(self, rank: WatchedRank) -> None:
        if not self._ask(rank, _LATE_DEADLINES):
            del self._unanswered[rank]
            self._keep(rank)

    def _stacks(self, rank: WatchedRank) -> list[StackSample]:
        samples = []
        try:
            samples.append(rank_stacks(rank, self._runtime, capture=True))
        except NoStacks as reason:
            self.miss(files.STACKS.name, str(reason), rank.rank)
        for pid in rank.descendants[:MOST_DESCENDANTS]:
            try:
                samples.append(child_stacks(rank, pid))
            except NoStacks as reason:
                # Other children need not be Python at all.
                if kind_of(rank, pid) == "worker" and procfs.stat(pid) is not None:
                    self.miss(files.STACKS.name, f"worker {pid}: {reason}", rank.rank)
        return samples

    def _write_native(self, rank: WatchedRank) -> None:
        """Stacks with native frames, which are asked for because they take seconds."""
        stat = rank.stat()
        if stat is None or stat.state in "ZXTtD":
            self.miss(files.NATIVE_STACKS.name, "the process cannot be paused", rank.rank)
            return
        try:
            threads = native_threads_of(rank.pid)
        except NoStacks as reason:
            self.miss(files.NATIVE_STACKS.name, str(reason), rank.rank)
            return
        sample = StackSample(clock(), rank.pid, "rank", threads, "py-spy --native")
        write(rank.folder, files.NATIVE_STACKS, [sample])

    def _keep_mapped(self, rank: WatchedRank) -> None:
        snapshots.keep_mapped(rank.folder)

    def _keep_documents(self, rank: WatchedRank) -> None:
        snapshots.keep_documents(rank.folder)

    def _write_movement(self, rank: WatchedRank, now: float) -> None:
        write(rank.folder, files.MOVEMENT, rank.movement(now))

    def _write_processes(self, rank: WatchedRank) -> None:
        write(rank.folder, files.PROCESSES, process_samples(rank, capture=True))

    def _write_rows(
        self,
        rank: WatchedRank,
        file: JsonLines[Record],
        waits: dict[WatchedRank, list[Record]],
    ) -> None:
        write(rank.folder, file, waits.get(rank, []))

    def _write_dead_children(self, rank: WatchedRank) -> None:
        """Children that are dead and that the rank itself has not told of."""
        told = {child.pid for child in _evidence(rank).read(files.CHILDREN)}
        found = []
        for pid in rank.descendants:
            stat = procfs.stat(pid)
            if stat is not None and stat.state == "Z" and pid not in told:
                end = ended(stat.exit_status)
                kind = "worker" if stat.name == _name(rank.pid) else "child"
                found.append(
                    ChildExit(end.at, pid, kind, end.code, end.signal, stat.name)  # type: ignore[arg-type]
                )
        write(rank.folder, files.CHILDREN, found)

    def _write_stderr(self, rank: WatchedRank, shared: set[stderr_files.FileIdentity]) -> None:
        file = stderr_files.stderr_file(rank.pid)
        if file is None:
            return
        # The host's is written anew by whoever was told where the job's own begins.
        folder = rank.folder.parent.parent if file in shared else rank.folder
        with contextlib.suppress(FileNotFoundError, PermissionError, ProcessLookupError):
            write_tail(folder / files.STDERR.name, stderr_files.stderr_path(rank.pid))

    def keep_stderr_of_gone(self, ranks: Iterable[WatchedRank]) -> None:
        """Copy what ranks that have gone wrote to files of their own, if nobody has yet."""
        ranks = list(ranks)
        shared = stderr_files.shared_files(ranks)
        for rank in ranks:
            file, path = rank.stderr, rank.stderr_path
            kept = (rank.folder / files.STDERR.name).exists()
            if file is None or path is None or file in shared or kept:
                continue
            if rank.stat() is None and stderr_files.is_at(file, path):
                self._write(rank, files.STDERR.name, self._copy_stderr, path)

    def _copy_stderr(self, rank: WatchedRank, source: Path) -> None:
        write_tail(rank.folder / files.STDERR.name, source)


def ended(status: int, by_recorder: bool = False) -> Exit:
    """An exit from a status as waitpid gives it."""
    if status & 0x7F:
        return Exit(clock(), None, status & 0x7F, by_recorder)
    return Exit(clock(), status >> 8, None, by_recorder)


def failing(end: Exit) -> bool:
    """True if a rank ended otherwise than by reaching its end."""
    return not end.by_recorder and (bool(end.code) or end.signal is not None)


def told(end: Exit) -> str:
    if end.signal is not None:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(end.signal).name}"
        return f"was ended by signal {end.signal}"
    return "ended" if end.code is None else f"ended with code {end.code}"


def _explained(refusal: str, samples: list[StackSample]) -> str:
    for sample in samples:
        for thread in sample.threads:
            if sample.kind == "rank" and thread.owns_gil and thread.frames:
                top = thread.frames[0]
                return (
                    f"{refusal}: thread {thread.name or thread.os_thread_id} holds the "
                    f"interpreter's lock in {top.function} ({top.file}:{top.line})"
                )
    return refusal


def _name(pid: int) -> str | None:
    stat = procfs.stat(pid)
    return stat.name if stat is not None else None


def _evidence(rank: WatchedRank) -> RankCase:
    return RankCase(rank.folder, "", rank.rank, rank.attempt, [])
