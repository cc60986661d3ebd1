"""Typed records of what surrounds the ranks: control groups, disks, limits, sockets, GPUs.

Times and units as in :mod:`hanglab.recorder.case.records`; sizes are bytes,
durations seconds unless a name says otherwise.  What could not be read is None.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hanglab.recorder.case import text_kinds as text
from hanglab.recorder.case.records import Clock


class Pressure(msgspec.Struct, frozen=True):
    """One PSI file: the share of time in which tasks waited for a resource, and since when.

    ``group`` is the control group's path, "" for the whole host.  Totals grow.
    """

    resource: Literal["cpu", "memory", "io"]
    some_percent: float
    some_s: float
    full_percent: float | None = None
    full_s: float | None = None
    group: text.DataPath = ""


class CpuGroup(msgspec.Struct, frozen=True):
    """A control group that bounds processor time, and the ranks in it.  Counters grow."""

    path: text.DataPath
    version: int
    ranks: list[int]
    #: Processors' worth of time per period; None without a limit.
    quota_cpus: float | None = None
    periods: int = 0
    throttled_periods: int = 0
    #: Summed over processors on version 2, over run queues on version 1.
    throttled_s: float = 0.0


class MemoryGroup(msgspec.Struct, frozen=True):
    """A control group that bounds memory, and the ranks in it.  Counters grow."""

    path: text.DataPath
    version: int
    ranks: list[int]
    used_bytes: int | None = None
    limit_bytes: int | None = None
    #: Version 2's ``memory.high``, beyond which tasks are slowed down.
    high_bytes: int | None = None
    #: How often the limit was met (version 1's failcnt, version 2's ``max`` event).
    refused: int | None = None
    #: How often ``high_bytes`` was exceeded.
    slowed: int | None = None
    oom_kills: int | None = None
    #: Pages of files read again soon after they had been dropped.
    refaults: int | None = None


class PidsGroup(msgspec.Struct, frozen=True):
    """A control group that bounds the number of tasks, and the ranks in it."""

    path: text.DataPath
    version: int
    ranks: list[int]
    count: int | None = None
    limit: int | None = None
    #: How often a task was refused.
    refused: int | None = None


class FileSystem(msgspec.Struct, frozen=True):
    """A file system that ranks write to.

    ``uses`` says what for: ``cwd``, ``tmp``, ``shm`` or ``file`` (an open file).
    ``path`` is where it is mounted.  ``unanswered_s`` is how long it had not
    answered a question for its size; its sizes are None then.
    """

    uses: list[text.Public]
    path: text.DataPath
    ranks: list[int]
    filesystem: text.Public = ""
    size_bytes: int | None = None
    #: What a process without privileges may still use.
    free_bytes: int | None = None
    inodes: int | None = None
    free_inodes: int | None = None
    unanswered_s: float = 0.0


class SleepingThread(msgspec.Struct, frozen=True):
    """A thread that sleeps uninterruptibly or inside a file's system call."""

    tid: int
    state: text.Public
    wchan: text.Public = ""
    #: Name of the system call, "" if unknown.
    syscall: text.Public = ""
    #: File that the call is about, where it names one.
    target: text.DataPath = ""


class RankLoad(msgspec.Struct):
    """One rank's process from outside: what it uses of its limits, and who keeps it waiting."""

    rank: int
    attempt: int
    pid: int
    state: text.Public = ""
    fds: int | None = None
    fd_limit: int | None = None
    #: RLIMIT_NPROC, of all processes and threads of the user together.
    processes_limit: int | None = None
    threads: int = 0
    rss_bytes: int = 0
    major_faults: int = 0
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    #: Of the main thread: time on a processor, and runnable without one.
    run_s: float | None = None
    wait_s: float | None = None
    #: Processors that it may use, as in ``0-3,8``.
    cpus: text.Public = ""
    #: Threads that the kernel keeps, or that are inside a call on a file; at the capture only.
    sleeping: list[SleepingThread] = []


class GpuSample(msgspec.Struct):
    """One GPU as NVML sees it.  Shares are percent, power watts, clocks MHz."""

    index: int
    uuid: text.Setting
    name: text.Public
    ranks: list[int] = []
    utilization: int | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: int | None = None
    clock_limit_mhz: int | None = None
    temperature: int | None = None
    #: Why the clock is lower than it could be: NVML's reasons, lower case, without ``gpu_idle``.
    throttled: list[text.Public] = []
    #: Uncorrected ECC errors since the driver was loaded.
    ecc_errors: int | None = None
    #: Its place on the bus, domain:bus:device.function, as the kernel's messages name it.
    pci: text.Public = ""


class HostSample(msgspec.Struct):
    """A line of ``samples.jsonl``: the host and its ranks at one moment."""

    at: Clock
    capture: bool = False
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    #: The host's count of processes that were killed for want of memory.
    oom_kills: int | None = None
    pressure: list[Pressure] = []
    cpu_groups: list[CpuGroup] = []
    memory_groups: list[MemoryGroup] = []
    pids_groups: list[PidsGroup] = []
    spaces: list[FileSystem] = []
    ranks: list[RankLoad] = []
    gpus: list[GpuSample] = []
    #: What the kernel has said since the sample before, of the kinds that matter here.
    kernel: list[text.Message] = []


class Connection(msgspec.Struct, frozen=True):
    """One TCP connection of a rank, from its end.

    ``local`` and ``remote`` are ``address:port``.  Sizes are bytes, ``_ms``
    milliseconds; what only TCP_INFO tells is None where it could not be asked.
    """

    local: text.Endpoint
    remote: text.Endpoint
    state: text.Public
    #: Bytes that the process has sent and the peer has not acknowledged; of a listener its backlog.
    send_queue: int = 0
    #: Bytes that have come and the process has not read; of a listener connections not accepted.
    receive_queue: int = 0
    #: Retransmissions of the segment that is due, in a row.
    backoff: int = 0
    #: Whether a timer for a retransmission runs.
    retransmitting: bool = False
    retransmitted: int | None = None
    unacknowledged: int | None = None
    rtt_ms: float | None = None
    least_rtt_ms: float | None = None
    last_sent_ms: int | None = None
    last_received_ms: int | None = None
    last_acknowledged_ms: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    delivery_bytes_s: int | None = None
    #: Time in which it had something to send, and of that held up by the peer's window, by
    #: its own buffer.
    busy_s: float | None = None
    peer_limited_s: float | None = None
    buffer_limited_s: float | None = None


class ConnectionSample(msgspec.Struct):
    """A line of ``connections.jsonl``: all TCP connections of one rank at one moment."""

    at: Clock
    connections: list[Connection]
    #: ``sock_diag`` (with TCP_INFO) or ``proc``.
    source: text.Public = "sock_diag"
    capture: bool = False
