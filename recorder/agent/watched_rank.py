"""One rank as the agent watches it from outside."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path

import msgspec

from hanglab.recorder.agent.counters import CounterFile
from hanglab.recorder.agent.descendant_work import DescendantWork
from hanglab.recorder.agent.external_traffic import RankProcesses
from hanglab.recorder.agent.io_bytes import IoBytes
from hanglab.recorder.agent.stderr_files import kept_path, stderr_file
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.progress import Counters
from hanglab.recorder.case.records import Exit, Movement, RankProcess, StackSample
from hanglab.recorder.case.user_code import UserCode
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import Position

#: A recorder thread that has run so lately can have the interpreter's lock.
_BEATS_NS = 1_000_000_000


class WatchedRank:
    """A rank's process, its counters, and how long it has not moved."""

    def __init__(self, folder: Path, process: RankProcess, *, outside: bool = False) -> None:
        self.folder = folder
        self.process = process
        self.rank = process.rank
        self.attempt = process.attempt
        self.pid = process.pid
        stat = procfs.stat(self.pid)
        self._started = stat.started if stat is not None else None
        #: The file that its standard error went to when it was found.
        self.stderr = stderr_file(self.pid)
        self.stderr_path = kept_path(self.pid) if self.stderr is not None else None
        self.user_code = UserCode(process.python.stdlib, process.python.site, process.python.own)
        self._file = CounterFile(folder)
        self._traffic = IoBytes(self.pid)
        #: Processes below the rank, as last looked up.
        self.descendants: list[int] = []
        self._descendant_work = DescendantWork(self.pid)
        self.exit: Exit | None = None
        #: Its exit status as waitpid gives it, once anybody has told.
        self.seen_status: int | None = None
        self.gone = stat is None
        #: Found in the tree of processes: it has no recorder of its own.
        self.outside = outside
        #: Seen to have to do with torch.distributed, where there are no counters.
        self.joined = False
        self.quiet_s = 0.0
        #: When it last moved, in monotonic seconds.
        self._moved_at = time.monotonic()
        self.longest_pause_s = 0.0
        self.last_signal = ""
        #: Seconds for which a log that others of its threads write counts as movement.
        self.patience_s = float("inf")
        #: When anything else of it last moved, in monotonic seconds.
        self._moved_itself_at = self._moved_at
        self._instructions_at_rest: int | None = None
        self._cpu_at_rest: tuple[float, float, float] | None = None
        self._cpu_seen: float | None = None
        #: Whether its main thread wants a processor and has had none since the last look.
        self.delayed = False
        self.position: Position | None = None
        #: Samples of the current quiet time.
        self.samples: deque[StackSample] = deque(maxlen=8)

    @property
    def counters(self) -> Counters | None:
        """Counters as last looked at."""
        return self._file.counters

    @property
    def begun(self) -> bool:
        """True if the rank has entered any operation, as far as can be told."""
        return self._file.begun if self.counters is not None else self.joined

    @property
    def idle_threads(self) -> tuple[int, ...] | None:
        """Threads of Python that bring it no further, while it is in an operation; else None."""
        return self.counters.idle_threads if self.counters is not None else None

    @property
    def phase(self) -> str:
        return self.counters.phase if self.counters is not None else ""

    def heartbeat_ns(self) -> int | None:
        """Monotonic time at which its recorder thread last ran; None without counters."""
        return self._file.heartbeat_ns()

    def left_early(self) -> bool | None:
        """True if a rank that is gone never came to its interpreter's end; None if nobody knows."""
        self._file.changes()  # it may have come there after the last look
        return self.phase != "exiting" if self.counters is not None else None

    @property
    def ending(self) -> bool:
        """True if its interpreter is being taken down and has not come to rest in it."""
        stat = self.stat() if self.phase == "exiting" else None
        return stat is not None and stat.state in "RD"

    def note_sample(self, sample: StackSample) -> None:
        """Keep a sample of the current quiet time."""
        self.samples.append(sample)
        if not self.joined:
            self.joined = any(
                "torch/distributed/" in frame.file
                for thread in sample.threads
                for frame in thread.frames
            )

    def stat(self) -> procfs.Stat | None:
        """The process's state; None once it has gone, also where its id was given to another."""
        stat = procfs.stat(self.pid)
        if stat is None or (self._started is not None and stat.started != self._started):
            return None
        return stat

    def look(self, seconds: float, learn: bool) -> bool:
        """True if the rank has moved since the last look, which was ``seconds`` ago.

        ``learn``: a pause that ends here counts as one that the job makes.
        """
        signal = self._file.changes()
        if signal:
            # Bytes are not looked at while counters move: there is nothing to compare with.
            self._traffic.forget()
        else:
            stat = self.stat()
            if stat is None or stat.state in "ZX":
                moved = not self.gone
                self.gone = True
                if stat is not None and stat.exit_status:
                    self.seen_status = stat.exit_status
                return moved
            self.delayed = stat.state == "R" and stat.cpu_s == self._cpu_seen
            self._cpu_seen = stat.cpu_s
            if self._traffic.moved(self.descendants, self._polls(), self.idle_threads):
                signal = "" if learn and self._only_talks() else "io"
        if signal:
            self.rest_ends(signal, learn)
            return True
        self.quiet_s += seconds
        if self._instructions_at_rest is None and self.counters is not None:
            self._instructions_at_rest = self.counters.instruction_changes
        return False

    def _only_talks(self) -> bool:
        """True if a log is all that has moved of it for longer than anybody waits for one.

        Of threads and processes beside the main thread, which may wait for what does not come.
        """
        rests_s = time.monotonic() - self._moved_itself_at
        return self._traffic.talks and rests_s >= self.patience_s

    def note_census(self, below: list[int], now: float) -> None:
        """``below`` are the processes below the rank; ``now`` is monotonic seconds."""
        self.descendants = below
        self._descendant_work.begin(below, now)

    @property
    def family(self) -> RankProcesses:
        """Processes of the rank, as far as they were looked up."""
        port = self.process.environment.get("MASTER_PORT", "")
        return RankProcesses(self.pid, self.descendants, int(port) if port.isdecimal() else None)

    def share_below(self, now: float) -> float:
        """Cores used, or waited for, by the processes below it since it has been quiet.

        Nothing where it is in an operation: it does not wait for those then.
        """
        counters = self.counters
        if counters is not None and counters.open_operations:
            return 0.0
        return self._descendant_work.share(self.descendants, now)

    @property
    def inside_native_code(self) -> bool:
        """True if its main thread has stood at one instruction since it has been quiet.

        With all operations done, and with the interpreter's lock free for others: it
        computes rather than waits or spins.
        """
        counters = self.counters
        if counters is None or self._instructions_at_rest is None:
            return False
        beat = time.monotonic_ns() - counters.heartbeat_mono_ns < _BEATS_NS
        still = counters.instruction_changes - self._instructions_at_rest <= 1
        return beat and still and counters.open_operations == 0

    def rest_ends(self, signal: str, learn: bool) -> None:
        if learn:
            self.longest_pause_s = max(self.longest_pause_s, self.quiet_s)
        self.quiet_s = 0.0
        self._moved_at = time.monotonic()
        if signal != "io" or not self._traffic.talks:
            self._moved_itself_at = self._moved_at
        self.last_signal = signal
        self._cpu_at_rest = None
        self._cpu_seen = None
        self.delayed = False
        self._instructions_at_rest = None
        self._descendant_work.forget()
        self.samples.clear()
        self.position = None

    def cpu_share(self, now: float) -> float:
        """Share of one core used, or waited for, since the rank has been quiet.

        ``now`` is monotonic seconds.
        """
        stat = self.stat()
        if stat is None:
            return 0.0
        wanted = procfs.wanted_s(self.pid) or 0.0
        if self._cpu_at_rest is None:
            self._cpu_at_rest = now, stat.cpu_s, wanted
            return 0.0
        since, used_before, wanted_before = self._cpu_at_rest
        if now - since <= 0.1:
            return 0.0
        used = max(stat.cpu_s - used_before, wanted - wanted_before)
        return max(0.0, used / (now - since))

    def movement(self, now: float) -> Movement:
        return Movement(
            quiet_s=self.quiet_s,
            longest_pause_s=self.longest_pause_s,
            cpu_share=self.cpu_share(now),
            last_signal=self.last_signal,
            stack_samples=len(self.samples),
            rested_s=now - self._moved_at,
            share_below=self.share_below(now),
        )

    def overlook_io(self) -> None:
        """Take the I/O since the last look for the recorder's own doing."""
        self._traffic.moved(self.descendants, self._polls(), self.idle_threads)

    def _polls(self) -> bool:
        return self.counters is not None and self.counters.polling


def find_ranks(host_folder: Path, known: set[Path], first_attempt: int = 0) -> list[WatchedRank]:
    """Ranks that have registered since, each with a complete process.json."""
    found = []
    try:
        entries = sorted(os.scandir(host_folder / folders.RANKS), key=lambda e: e.name)
    except OSError:
        return []
    for entry in entries:
        folder = Path(entry.path)
        number = folders.parse_rank_folder(entry.name)
        if folder in known or number is None or number[1] < first_attempt:
            continue
        try:
            data = (folder / files.PROCESS.name).read_bytes()
            found.append(WatchedRank(folder, msgspec.json.decode(data, type=RankProcess)))
        except (OSError, msgspec.MsgspecError):
            continue
    return found
