"""Typed records of a Case, format 1: one class per JSON document or JSON line.

Times are nanoseconds.  A :class:`Clock` is one reading of both clocks of one
process, so that monotonic times of different processes can be laid side by
side.  Absent things are ``None`` or empty, never invented.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hanglab.recorder.case import text_kinds as text

FORMAT = 1

TriggerKind = Literal["no_progress", "exit", "timeout_dump", "deadline", "request", "interrupt"]
ProcessKind = Literal["rank", "worker", "child"]


class Clock(msgspec.Struct, frozen=True):
    """One simultaneous reading of the wall clock and of the monotonic clock."""

    wall_ns: int
    mono_ns: int


class FileEntry(msgspec.Struct, frozen=True):
    """A file of the Case, relative to its root, as it was when the manifest was written."""

    path: str
    size: int
    sha256: str


class Absence(msgspec.Struct, frozen=True):
    """Evidence that could not be had, and why."""

    what: str
    reason: str
    host: str | None = None
    rank: int | None = None


class Manifest(msgspec.Struct):
    """``manifest.json``: every file of the Case with size and checksum, and every absence."""

    format: int
    recorder: str
    written: Clock
    files: list[FileEntry] = []
    absent: list[Absence] = []


class Trigger(msgspec.Struct, frozen=True):
    """The reason of a capture.  ``quiet_s`` is how long nothing had moved by then."""

    kind: TriggerKind
    at: Clock
    quiet_s: float = 0.0
    detail: text.Message = ""


class JobRecord(msgspec.Struct):
    """``job.json``: facts about the whole job."""

    world_size: int | None
    started: Clock
    hang_after_s: float | None = None
    trigger: Trigger | None = None
    ended: Clock | None = None
    #: True where hanglab ended the ranks; their exits after that say nothing.
    ended_by_recorder: bool = False
    #: When a signal that asks it to end was passed on to it (Ctrl-C, SIGTERM ...); how its ranks
    #: ended after that says nothing of the job.
    interrupted: Clock | None = None
    #: Of a job on several hosts: by how many nanoseconds the wall clock of each is ahead of the
    #: one that this document was written by, but for the time that a message took.
    clocks_ahead_ns: dict[text.HostName, int] = {}


class Python(msgspec.Struct):
    """Folders of the interpreter's own code, so that user code can be told apart."""

    version: str
    #: Directories of the standard library.
    stdlib: list[str] = []
    #: site-packages and dist-packages directories.
    site: list[str] = []
    #: Directories of hanglab's own code.
    own: list[str] = []
    torch: str | None = None
    torch_version: str | None = None
    #: Whether an extension module wrote sections and steps; None where nothing tells.
    native: bool | None = None
    #: Versions of CUDA and NCCL that torch was built with; None for a build without.
    cuda: str | None = None
    nccl: str | None = None


class RankProcess(msgspec.Struct):
    """``process.json``: the rank's process, as it described itself at its start."""

    pid: int
    rank: int
    world_size: int | None
    started: Clock
    python: Python
    local_rank: int | None = None
    attempt: int = 0
    argv: list[str] = []
    #: Only names on the recorder's allow-list.
    environment: dict[text.Public, text.Setting] = {}


class GroupRecord(msgspec.Struct):
    """``groups.json`` holds a list of these: the process groups that the rank is a member of."""

    #: The group's name in Flight Recorder dumps.
    id: text.GroupName
    description: text.GroupName
    #: Global ranks of the members, in group order.
    ranks: list[int]
    backend: text.Public = ""


class StackFrame(msgspec.Struct, frozen=True):
    function: text.FunctionName
    file: text.CodeFile
    line: int


class ThreadStack(msgspec.Struct):
    """Stack of one thread, innermost frame first."""

    frames: list[StackFrame]
    name: text.ThreadName = ""
    os_thread_id: int | None = None
    main: bool = False
    #: Running on a processor or runnable, as far as the sampler could tell.
    active: bool = False
    owns_gil: bool = False


class StackSample(msgspec.Struct):
    """A line of ``stacks.jsonl``: the stacks of one process of the rank at one moment."""

    at: Clock
    pid: int
    kind: ProcessKind
    threads: list[ThreadStack]
    #: ``py-spy``, ``in-rank`` or ``faulthandler``.
    source: text.Public = "py-spy"
    #: True for the sample taken at capture, False for those before it.
    capture: bool = True


class ProcessSample(msgspec.Struct):
    """A line of ``processes.jsonl``: one process of the rank, from outside, at one moment."""

    at: Clock
    pid: int
    ppid: int
    kind: ProcessKind
    #: State letter of /proc/PID/stat (R, S, D, T, t, Z, X), "" if unknown.
    state: text.Public
    #: User and system time used so far, in seconds.
    cpu_s: float
    threads: int = 0
    rss_bytes: int = 0
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    open_fds: int | None = None
    wchan: text.Public = ""
    name: text.ThreadName = ""
    capture: bool = True
    #: Its control group is frozen: it is in state D then, in whatever call it was.
    frozen: bool = False


class FileLockWait(msgspec.Struct):
    """A line of ``file_locks.jsonl``: a lock of a file that a process of the rank waits for."""

    pid: int
    #: FLOCK, POSIX or LEASE.
    kind: text.Public
    file: text.DataPath
    #: The process that holds it, and the rank that this process belongs to.
    holder: int
    holder_rank: int


class OtherEnd(msgspec.Struct):
    """A process at the other end of a pipe or socket, and the rank that it belongs to."""

    pid: int
    name: text.ThreadName = ""
    #: None for a process of no rank.
    rank: int | None = None
    #: True where it serves torch's store, and the connection leads to a port that it listens at.
    serves_store: bool = False


class DescriptorWait(msgspec.Struct):
    """A line of ``descriptor_waits.jsonl``: what a process's main thread is blocked on.

    A call that waits for any of several has a line for each.
    """

    pid: int
    #: The system call, such as ``read`` or ``poll``.
    call: text.Public
    descriptor: int
    #: ``pipe``, ``unix`` or ``tcp``.
    kind: text.Public
    #: True if it waits for room to write, or for a connection to be accepted.
    sends: bool = False
    #: Of TCP, its own end and the other; "" otherwise.
    local: text.Endpoint = ""
    remote: text.Endpoint = ""
    state: text.Public = ""
    #: Who can end the wait; empty where nobody on this host has the other end.
    others: list[OtherEnd] = []


class Movement(msgspec.Struct):
    """``movement.json``: what the recorder saw move in this rank, up to the capture.

    A rank moves when its step, section or operation counters, its I/O bytes or
    the functions on its stack change.  CPU time alone is not movement.
    """

    #: Time since anything of this rank moved, when captured.
    quiet_s: float
    #: The longest earlier time in which nothing of it moved.
    longest_pause_s: float
    #: Share of one core that the rank's process used, or waited for, during ``quiet_s``.
    cpu_share: float
    #: What moved last: ``operations``, ``steps``, ``sections``, ``io``, ``stack`` or "".
    last_signal: text.Public = ""
    #: Number of stack samples taken during ``quiet_s``.
    stack_samples: int = 0
    #: The same as ``quiet_s`` by the clock: longer where the recorder could not look, too.
    rested_s: float = 0.0
    #: Cores that the processes below the rank used, or waited for, meanwhile; 0 where it was in
    #: an operation.
    share_below: float = 0.0


class FullDisk(msgspec.Struct, frozen=True):
    """A writable file system without room when a write failed."""

    path: text.DataPath
    filesystem: text.Public
    size_bytes: int
    free_bytes: int
    no_inodes: bool = False


class Raised(msgspec.Struct):
    """A line of ``exceptions.jsonl``: an exception that reached the top of a thread.

    Those of ``handled.jsonl`` and ``pending.json`` did not.
    """

    at: Clock
    type: text.ExceptionType
    message: text.Message
    #: Innermost frame first.
    frames: list[StackFrame]
    thread: text.ThreadName = "MainThread"
    main: bool = True
    #: What led to it, the latest first, each as ``type: message``.
    because: list[text.RaisedText] = []
    full: list[FullDisk] = []


class ThreadWait(msgspec.Struct):
    """``waits.json`` holds a list of these: what a thread waits for, and whether for ever."""

    #: ``condition``, ``queue``, ``future``, ``pool``, ``thread``, ``process``, ``selector``,
    #: ``loop`` (an event loop), or ``lock`` (any wait for a futex outside of the
    #: standard library's Python code).
    kind: text.Public
    #: True where the wait has no timeout.
    forever: bool
    main: bool = False
    os_thread_id: int | None = None
    #: The thread that is to end, its id in the kernel and its name.
    thread: int | None = None
    thread_name: text.ThreadName = ""
    #: Files and sockets that an event loop listens to, besides its own pipe.
    watches: int | None = None
    #: Of a lock that lies in memory of several processes: device and inode of that memory.
    shared: text.Public = ""


class StoreKeyUse(msgspec.Struct):
    """``store_keys.json`` holds a list of these: how a rank has used keys of a Store.

    Keys that differ by numbers alone are one use.
    """

    #: ``set`` (also add, append and the like), ``wait``, ``check`` (of that the first
    #: time), or ``join``: the host and port of a store that it makes right now.
    kind: text.Public
    #: The latest key, and the one before it, "" without.
    key: text.Setting
    earlier: text.Setting = ""
    count: int = 1
    #: The rank's operations entered so far at each of the latest four, oldest first.
    operations: list[int] = []
    #: True if the main thread waits for ``key`` now.
    waiting: bool = False
    #: What PrefixStores put before the key: equal keys under two prefixes are two.
    prefix: text.Setting = ""
    #: Other keys for which the same call waits now, 64 at most.
    others: list[text.Setting] = []


class Poll(msgspec.Struct):
    """``polls.json`` holds a list of these: a question that the main thread asked again and again.

    Of the time since the rank's latest step, section or operation, and of equal answers.
    """

    #: ``file`` or ``key``.
    kind: text.Public
    #: The path, or the key as passed to the store.
    what: text.DataPath
    #: The functions that were called, such as ``exists``, ``getmtime``, ``stat``, ``access``,
    #: ``listdir``, ``scandir``, ``open``, between commas; of stores ``check``, ``add``.
    call: text.Public
    #: True if it was there.  Of ``open`` those that failed count, also as it was there already.
    found: bool
    #: How often it was asked.
    count: int
    #: Time between the first and the latest question.
    asked_s: float
    #: Time since the latest question.
    ago_s: float
    #: The innermost line of user code that asked.
    file: text.CodeFile = ""
    #: Function of ``file``.
    function: text.FunctionName = ""
    #: Line of ``file``.
    line: int = 0
    #: When a file that was there had been changed last, on the wall clock of its file system.
    changed_ns: int | None = None
    #: That clock is the host's own, and not that of a server.
    by_host: bool = False
    #: The counter's value, where the question was for one.
    value: int | None = None
    #: What PrefixStores put before the key.
    prefix: text.Setting = ""


class Exit(msgspec.Struct):
    """``exit.json``: how the rank's process ended."""

    at: Clock
    code: int | None = None
    signal: int | None = None
    #: True if hanglab ended it (after the capture); then it is no evidence.
    by_recorder: bool = False
    #: True if nobody told how, but not by its interpreter's end: by a signal, or ``_exit``.
    vanished: bool = False

    @property
    def words(self) -> str:
        """Its end, in words such as "ended with code 3"."""
        if self.signal is not None:
            return f"ended by signal {self.signal}"
        return "ended, nobody told how" if self.code is None else f"ended with code {self.code}"


class ProgramEnd(msgspec.Struct):
    """A line of ``departures.jsonl``: what the rank called to end, or that it came to its end.

    A call that raises, as all but ``os._exit`` do, may have been caught.
    """

    at: Clock
    #: ``end``: the main program was through, or an exception had reached its top.
    how: Literal["sys.exit", "exit", "quit", "os._exit", "end"]
    #: As it was called with; None of ``end``.
    code: int | None = None
    #: Innermost line of user code that called.
    frame: StackFrame | None = None
    #: Name of the thread that called; empty for the main one.
    thread: text.ThreadName = ""


class HostRecord(msgspec.Struct):
    """``host.json``: the machine that the agent runs on."""

    name: text.HostName
    cpus: int
    memory_bytes: int
    kernel: text.KernelRelease
    clock: Clock


class Container(msgspec.Struct):
    """``container.json``: what the container engine says of a host that is a container."""

    at: Clock
    id: text.Setting
    #: ``running``, ``paused``, ``restarting``, ``exited``, ``dead`` ...
    status: text.Public
    #: Of the container's first process; None while it runs.
    exit_code: int | None = None
    #: Whether the kernel has ended a process of it for want of memory, as far as the engine knows.
    oom_killed: bool = False
    restarts: int = 0
    #: Limits it was made with; None without.
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    shm_bytes: int | None = None
    #: Its addresses, and in how many networks it is.
    addresses: list[text.IpAddress] = []
    networks: int = 0


class SchedulerRecord(msgspec.Struct):
    """``scheduler.json``: what the cluster's scheduler says of the job, last at its end."""

    at: Clock
    #: ``slurm``.
    name: text.Public
    #: Its number there.
    job: text.Public
    #: As the scheduler calls it: ``RUNNING``, ``TIMEOUT``, ``PREEMPTED``, ``CANCELLED`` ...
    state: text.Public
    #: The scheduler's own word for why, such as ``TimeLimit``.
    reason: text.Public = ""
    #: How often it was begun anew after its end.
    restarts: int = 0
    #: When it was first seen to ask processes of the job to end, by the clock of ``job.json``.
    asked_to_end: Clock | None = None


PodEnding = Literal[
    "oom_killed", "evicted", "preempted", "node_lost", "deadline", "failed", "succeeded"
]


class PodRecord(msgspec.Struct):
    """``pod.json``: what Kubernetes says of a host that is a pod, at ``at`` of the collector."""

    at: Clock
    name: text.HostName
    namespace: text.Setting = ""
    node: text.HostName = ""
    #: ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``.
    phase: text.Public = ""
    #: How it ended, or is about to; None of one that runs.
    ending: PodEnding | None = None
    message: text.Message = ""
    exit_code: int | None = None
    restarts: int = 0


class ChildExit(msgspec.Struct):
    """A line of ``children.jsonl``: a process started by the rank that ended before it did."""

    at: Clock
    pid: int
    kind: ProcessKind
    code: int | None = None
    signal: int | None = None
    name: text.ThreadName = ""


class CodeLoop(msgspec.Struct, frozen=True):
    """A loop: its lines, inclusive, and the integer of its variable, if a frame holds one."""

    first: int
    last: int
    counter: int | None = None
    #: It goes over what counts; else that may be anything, such as a length.
    counts: bool = True


class CodeBlock(msgspec.Struct, frozen=True, array_like=True):
    """Lines that follow each other, and the numbers of the blocks that may come next.

    Without the ways back to the start of a loop, and those of exceptions.
    """

    lines: list[int]
    next: list[int]


class CodeShape(msgspec.Struct):
    """``code.json`` holds a list of these: user code that stood on a stack, and its loops.

    A line says where a rank stands; only together with the loops around it does
    it say whether the rank has left the loop that its peers are still in.
    Lines are inclusive, loops outermost first.
    """

    file: text.CodeFile
    function: text.FunctionName
    first_line: int
    last_line: int
    loops: list[CodeLoop] = []
    blocks: list[CodeBlock] = []
    #: Signals that it handles, such as ``SIGUSR1``: then it may begin behind any instruction.
    signals: list[text.Public] = []

    def encloses(self, line: int) -> bool:
        return self.first_line <= line <= self.last_line


class LocalValue(msgspec.Struct, frozen=True):
    """``locals.json`` holds a list of these: a variable by which a function decides.

    Of the functions on the main thread's stack, as they stand at ``line``.
    """

    file: text.CodeFile
    function: text.FunctionName
    line: int
    name: text.FunctionName
    #: As Python shows it, cut off.
    value: text.Message


class SourceFunction(msgspec.Struct, frozen=True):
    """``sources.json`` holds a list of these: source of one function, or why it is not there.

    ``function`` is its bare name, ``<module>`` for a file's own code, of which functions and
    classes are left out.  Lines are those of the file, ``lines`` the text from ``first_line``.
    """

    file: text.CodeFile
    function: text.FunctionName
    first_line: int
    last_line: int
    lines: list[text.Message] = []
    #: SHA-256 of the whole file, in hexadecimal digits.
    checksum: text.Public = ""
    #: Reason for which there is no text.
    absent: text.Message = ""


class LineCount(msgspec.Struct, frozen=True):
    """``lines.json`` holds a list of these: how often a line was the innermost of user code.

    ``below`` is what it had called at the time, ``within`` what had called it: a data
    loader without workers makes its batches in the rank's own thread.  ``section`` is the
    innermost one that was open.
    """

    file: text.CodeFile
    function: text.FunctionName
    line: int
    count: int
    below: Literal["", "communication", "input"] = ""
    within: Literal["", "input"] = ""
    section: text.SectionName = ""


class TimingSummary(msgspec.Struct, frozen=True, array_like=True):
    """A window of timings of one section or kernel, in milliseconds.

    In JSON a list of the fields in this order; that of ``recorder.slowness.Summary``.
    """

    count: int
    minimum: float
    maximum: float
    median: float
    mean: float
    deviation: float | None
    tail: float
    error: float | None
    trimmed: float
    trimmed_error: float | None
    stalls: int = 0
    stalled_ms: float = 0.0
    stretch_medians: tuple[float, ...] = ()
    stretch_means: tuple[float, ...] = ()


class SectionTimings(msgspec.Struct):
    """One section in one window of the straggler detector; milliseconds an entry."""

    #: The rank's own work, waits left out; None where they cannot be told apart.
    work: TimingSummary | None
    #: How: wall time less measured waits, or processor time; "" where not at all.
    measure: Literal["wall", "processor", ""]
    communication_ms: float = 0.0
    input_ms: float = 0.0
    device: TimingSummary | None = None
    #: Of the best window so far; None where that is this one.
    best: TimingSummary | None = None
    individual: float | None = None


class InputShare(msgspec.Struct, frozen=True):
    """Share of a window spent waiting for input, and how busy the loader's workers were."""

    share: float
    busy: float | None = None


class MissingRank(msgspec.Struct, frozen=True):
    """A rank that did not report, or whom the others wait for."""

    rank: int
    since_s: float
    last_window: int
    text: str = ""


class StragglerLine(msgspec.Struct):
    """A line of ``straggler.jsonl``: one window of the rank, or what it was told of the others."""

    kind: Literal["window", "report"]
    at: Clock
    number: int
    #: Of a window.
    rank: int | None = None
    node: str = ""
    span_ms: float = 0.0
    sections: dict[str, SectionTimings] = {}
    kernels: dict[str, TimingSummary] = {}
    gpu_individual: float | None = None
    input: InputShare | None = None
    #: Milliseconds for which the rank waited for a processor; None where the kernel is silent.
    run_queue_delay_ms: float | None = msgspec.field(default=None, name="kept_ms")
    #: Milliseconds for which the same thread had one.
    ran_ms: float | None = None
    warnings: list[str] = []
    #: Of a report; ``unasked`` if the detector made it itself since the job stood.
    unasked: bool = False
    missing: list[MissingRank] = []
    #: Ranks that are slower than their peers in some section, again and again.
    slow: list[int] = []
