"""Samples of the host before and at the capture, in a thread of their own.

A disk that does not answer or a slow driver must never hold up the watch over
the ranks.  The latest samples are kept in memory and written at the capture;
so that something is left if the agent dies, some are written as they come, at
intervals that double: whatever the job's length, the file stays small.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from hanglab.recorder.agent.host import nccl_ras
from hanglab.recorder.agent.host.gpu import Gpus
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.host_records import ConnectionSample, HostSample
from hanglab.recorder.case.records import RankProcess
from hanglab.recorder.case.writer import clock, write
from hanglab.recorder.system import procfs, sockets
from hanglab.recorder.system.cgroups import RankControlGroups
from hanglab.recorder.system.file_systems import FileSystems
from hanglab.recorder.system.kernel_files import numbers, read
from hanglab.recorder.system.kernel_log import EMULATED_LOG, KernelLog
from hanglab.recorder.system.pressure import pressures
from hanglab.recorder.system.process_limits import load_of

#: Seconds between two samples, or so many times what one takes: 2 % of a processor at most.
INTERVAL_S = 1.0
_REST = 50
#: Samples that are kept in memory until the capture.
_KEPT = 60
#: Samples that are written at one interval before it doubles.
_EACH = 30
#: The kernel lists all connections of the host: where that takes more than so many seconds of
#: a processor they are asked for with every tenth sample only, and beyond ten times that at
#: the capture.
_DEAR_S = 0.005
_SELDOM = 10
#: So many lists of connections are kept.
_SPACED = 5
#: Seconds within which the sample at the capture must be there.
_DEADLINE_S = 1.5

Miss = Callable[[str, str, int | None], None]


class SampledRank(Protocol):
    """A rank to be sampled, as the agent knows it."""

    @property
    def rank(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def folder(self) -> Path: ...
    @property
    def process(self) -> RankProcess: ...


class HostSampler:
    """Call ``follow`` whenever ranks come or go, ``close`` at the end.

    ``ask`` asks for the sample of a capture, ``wait`` waits until it is written.
    Nothing raises and nothing else waits; what cannot be had is told to
    ``miss(what, reason, rank)``.
    """

    def __init__(self, host_folder: Path, runtime: Path, miss: Miss) -> None:
        self._host_folder = host_folder
        self._runtime = runtime
        self._miss = miss
        self._ranks: tuple[SampledRank, ...] = ()
        self._groups: dict[int, str | None] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._asked = False
        self._done = threading.Event()
        self._kept: deque[tuple[HostSample, bool]] = deque(maxlen=_KEPT)
        self._connections: dict[Path, deque[ConnectionSample]] = {}
        self._count = 0
        self._written = 0
        self._stride = 1
        #: The longest that a list of connections has taken, in seconds.
        self._dearest = 0.0
        self._thread = threading.Thread(target=self._run, name="hanglab-host", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def follow(self, ranks: Sequence[SampledRank]) -> None:
        """The ranks that live now.  Those that are new, or in a new group, are sampled at once.

        How often a group's limit was met counts from its first sample.
        """
        groups = {rank.pid: read(f"/proc/{rank.pid}/cgroup") for rank in ranks}
        new = any(text is not None and self._groups.get(p) != text for p, text in groups.items())
        self._groups = groups
        with self._lock:
            self._ranks = tuple(ranks)
        if new:
            self._wake.set()

    def ask(self) -> None:
        """Begin with the sample of a capture."""
        self._done.clear()
        self._asked = True
        self._wake.set()

    def wait(self) -> None:
        """Until the sample asked for, and those kept before it, are written; at most 1.5 s."""
        if not self._done.wait(_DEADLINE_S):
            self._miss(files.SAMPLES.name, f"no sample within {_DEADLINE_S} s", None)

    def close(self) -> None:
        """End, and leave what has been kept."""
        self._closing = True
        self._wake.set()
        self._thread.join(0.5)

    def _run(self) -> None:
        try:
            host = _SampledHost(self._runtime)
        except Exception as error:
            self._miss(files.SAMPLES.name, f"{type(error).__name__}: {error}", None)
            self._done.set()
            return
        for what, reason in host.missing():
            self._miss(what, reason, None)
        due = time.monotonic()
        while not self._closing:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            if self._closing:
                break
            asked, self._asked = self._asked, False
            with self._lock:
                ranks = self._ranks
            began = time.thread_time()  # on a busy host little work takes long
            if ranks or asked:
                try:
                    self._take(host, ranks, asked)
                except Exception as error:
                    self._miss(files.SAMPLES.name, f"{type(error).__name__}: {error}", None)
            if asked:
                self._done.set()
            now, cost = time.monotonic(), time.thread_time() - began
            due = max(due + INTERVAL_S, now + INTERVAL_S / 2, now + _REST * cost)
        self._write_kept()
        host.close()

    def _take(self, host: _SampledHost, ranks: tuple[SampledRank, ...], capture: bool) -> None:
        sample = host.sample(ranks, capture)
        seldom = 1 if self._dearest < _DEAR_S else _SELDOM
        if capture or (self._dearest < 10 * _DEAR_S and self._count % seldom == 0):
            self._take_connections(ranks, capture)
        if capture:
            self._kept.append((sample, False))
            self._write_kept()
            self._ask_nccl(ranks)
            return
        written = self._count % self._stride == 0
        self._count += 1
        if written:
            self._write([sample])
            self._written += 1
            if self._written % _EACH == 0:
                self._stride *= 2
        self._kept.append((sample, written))

    def _take_connections(self, ranks: tuple[SampledRank, ...], capture: bool) -> None:
        began = time.thread_time()  # on a busy host little work takes long
        found, problems = sockets.sample([rank.pid for rank in ranks], capture)
        self._dearest = max(self._dearest, time.thread_time() - began)
        for rank in ranks:
            if rank.pid in found:
                kept = self._connections.setdefault(rank.folder, deque(maxlen=_SPACED))
                sockets.keep(kept, found[rank.pid])
            elif capture:
                self._miss(files.CONNECTIONS.name, "the process has gone", rank.rank)
        for problem in problems:
            self._miss(files.CONNECTIONS.name, problem, None)

    def _write(self, samples: list[HostSample]) -> None:
        try:
            write(self._host_folder, files.SAMPLES, samples)
        except OSError as error:
            self._miss(files.SAMPLES.name, f"could not be written: {error.strerror}", None)

    def _write_kept(self) -> None:
        self._write([sample for sample, written in self._kept if not written])
        self._kept.clear()
        for folder, samples in self._connections.items():
            with contextlib.suppress(OSError):
                write(folder, files.CONNECTIONS, samples)
        self._connections.clear()

    def _ask_nccl(self, ranks: tuple[SampledRank, ...]) -> None:
        """One answer tells of all ranks, whoever gives it."""
        refusals: list[str] = []
        asked = set()
        for rank in ranks:
            if not _runs_nccl(rank.pid, rank.process.environment):
                continue
            try:
                address = nccl_ras.address_of(rank.process.environment)
                if address in asked:
                    continue
                asked.add(address)
                write(self._host_folder, files.NCCL_RAS, nccl_ras.ask(*address))
                return
            except (nccl_ras.NoAnswer, OSError) as reason:
                refusals.append(str(reason))
        if refusals:
            self._miss(files.NCCL_RAS.name, refusals[0], None)


class _SampledHost:
    """All that is sampled of one host, with what has to be kept from one sample to the next."""

    def __init__(self, runtime: Path) -> None:
        self._groups = RankControlGroups()
        self._file_systems = FileSystems()
        self._gpus = Gpus()
        self._kernel = KernelLog(runtime / EMULATED_LOG)
        self._ranks: dict[int, SampledRank] = {}

    def missing(self) -> list[tuple[str, str]]:
        found = [(f"cgroup {name}", reason) for name, reason in self._groups.missing().items()]
        if not pressures([]):
            found.append(("pressure", "the kernel has no /proc/pressure"))
        if self._gpus.missing:
            found.append(("gpu", self._gpus.missing))
        if self._kernel.missing:
            found.append(("kernel messages", self._kernel.missing))
        return found

    def sample(self, ranks: Sequence[SampledRank], capture: bool) -> HostSample:
        for rank in ranks:
            self._groups.notice(rank.rank, rank.pid)
        processes = {rank.rank: rank.pid for rank in ranks}
        memory = numbers("/proc/meminfo")
        loads = [load_of(rank.rank, rank.attempt, rank.pid, sleeping=capture) for rank in ranks]
        return HostSample(
            at=clock(),
            capture=capture,
            memory_bytes=_kibibytes(memory.get("MemTotal")),
            memory_available_bytes=_kibibytes(memory.get("MemAvailable")),
            oom_kills=numbers("/proc/vmstat").get("oom_kill"),
            pressure=pressures(self._groups.folders()),
            cpu_groups=self._groups.cpu(),
            memory_groups=self._groups.memory(),
            pids_groups=self._groups.pids(),
            spaces=self._file_systems.spaces(processes),
            ranks=[load for load in loads if load is not None],
            gpus=self._gpus.sample(processes),
            kernel=self._kernel.new(),
        )

    def close(self) -> None:
        self._file_systems.close()
        self._gpus.close()
        self._kernel.close()


def _kibibytes(value: int | None) -> int | None:
    return None if value is None else value * 1024


#: Memory of a communicator whose device is emulated.
_EMULATED = "/memfd:hanglab-communicator"


def _runs_nccl(pid: int, environment: dict[str, str]) -> bool:
    """True if a process has NCCL's library and a GPU open; the library alone comes with torch.

    An emulated device answers where it was told to, and only there.
    """
    text = "\n".join(procfs.mapped_files(pid))
    if _EMULATED in text:
        return "NCCL_RAS_ADDR" in environment
    return "/dev/nvidia" in text and ("libnccl" in text or "libtorch_cuda" in text)
