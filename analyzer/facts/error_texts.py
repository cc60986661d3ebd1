"""The table of error texts: what each says, and whether it is a root or a consequence.

A root is a trouble of whoever prints it: a CUDA error, a full disk.  A consequence is what a
rank says because of another: a connection closed, a time limit that struck, an abort by the
watchdog that had waited.  Where one error holds both, an abort by the watchdog over a CUDA error
for one, it is a root: the consequence is how it was found.  A hint proves nothing alone; together
with other evidence of its row's cause (a full disk, a process at its limit, a call that joins the
job) it tells what happened.

Each row has a real text as its example, and where that was seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.file_system_space import NO_SPACE_TEXT


class Kind(str, Enum):
    ROOT = "root"
    CONSEQUENCE = "consequence"
    HINT = "hint"


@dataclass(frozen=True)
class ErrorText:
    """A row.  ``cause`` is None where the way in which the process ended names it.

    ``sticky``: no process survives it, so wherever a log holds it, it is why the process failed.
    ``gave_up``: whoever says it lost its patience with a peer, which need not have ended.
    ``between_ranks``: the trouble lies between ranks, and whoever says it is not to blame.
    """

    kind: Kind
    cause: Cause | None
    pattern: re.Pattern[str]
    example: str
    note: str
    sticky: bool = False
    gave_up: bool = False
    between_ranks: bool = False


def _row(
    kind: Kind,
    cause: Cause | None,
    pattern: str,
    example: str,
    note: str,
    *,
    sticky: bool = False,
    gave_up: bool = False,
    between_ranks: bool = False,
) -> ErrorText:
    compiled = re.compile(pattern)
    return ErrorText(kind, cause, compiled, example, note, sticky, gave_up, between_ranks)


# -- rows that detectors read numbers out of

#: Bytes received, bytes expected.
REFUSED_SIZE = _row(
    Kind.CONSEQUENCE, Cause.SIZE_MISMATCH,
    r"preamble\.length <= op\.nbytes\. (\d+) vs (\d+)",
    "[enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
    "197376 vs 65920",
    "gloo transport/tcp/pair.cc: it received more than it had room for; which side is wrong, "
    "both sides' sizes tell",
)  # fmt: skip
#: Ranks within the group.  Without wait_all_ranks only the first is named.
MISSED_BARRIER = _row(
    Kind.CONSEQUENCE, None,
    r"\[Rank (?P<by>\d+)\]: Ranks? (?P<missing>\d+(?:, \d+)*) failed to pass monitoredBarrier in "
    r"\d+ ms",
    "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 3000 ms",
    "torch ProcessGroupGloo::monitoredBarrier",
    gave_up=True,
)  # fmt: skip
AT_BARRIER = _row(
    Kind.CONSEQUENCE, None, r"monitoredBarrier|Monitored Barrier",
    "Original exception: monitoredBarrier failed", "torch ProcessGroupGloo: any word on a barrier",
)  # fmt: skip
#: Ranks within the group; each tells what it has, and what the first that differs has.
MISMATCH_FOUND = _row(
    Kind.CONSEQUENCE, None, r"Detected mismatch between collectives on ranks",
    "Detected mismatch between collectives on ranks. Rank 0 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=77, OpType=ALLREDUCE, TensorShape=[20, 10]), but Rank 1 "
    "is running collective: CollectiveFingerPrint(SequenceNumber=77, OpType=REDUCE)",
    "torch ProcessGroupWrapper.cpp, TORCH_DISTRIBUTED_DEBUG=DETAIL (pytorch#100214)",
)  # fmt: skip
#: Ranks within the group; of sizes each that differs from process 0 tells its own.
UNLIKE_MODELS = _row(
    Kind.CONSEQUENCE, None,
    r"DDP expects same model across all ranks, but Rank (?P<rank>\d+) has (?P<count>\d+) params, "
    r"while rank (?P<other>\d+) has inconsistent (?P<theirs>\d+) params"
    r"|\[(?P<own>\d+)\]: params\[(?P<place>\d+)\] in this process with sizes "
    r"\[(?P<sizes>[\d, ]*)\] appears not to match sizes of the same param",
    "DDP expects same model across all ranks, but Rank 2 has 6 params, while rank 0 has "
    "inconsistent 4 params.",
    "torch reducer.cpp, verify_params_across_processes; a stranger's job on gloo",
)  # fmt: skip
#: Ranks within the group that saves or loads; each rank of it raises the same.
RANKS_THAT_FAILED = _row(
    Kind.CONSEQUENCE, None,
    r"CheckpointException ranks:dict_keys\(\[(\d+(?:, \d+)*)\]\)",
    "CheckpointException ranks:dict_keys([2])",
    "torch.distributed.checkpoint, api.py: the tracebacks of those that failed follow",
)  # fmt: skip
#: The port of a peer that had told a loopback address.
PEER_AT_LOOPBACK = _row(
    Kind.HINT, Cause.RENDEZVOUS,
    r"connectFullMesh failed(?s:.*)remote=\[(?:127\.[\d.]+|::1|::ffff:127\.[\d.]+)\]:(\d+)",
    "Gloo connectFullMesh failed with [/gloo/transport/tcp/pair.cc:146] no error, "
    "remote=[127.0.0.1]:38309",
    "gloo transport/tcp: of any peer",
)  # fmt: skip
#: Of a call that joins the job: that it failed at joining, and not of a peer.
JOIN_FAILED = _row(
    Kind.HINT, Cause.RENDEZVOUS,
    r"Address already in use|EADDRINUSE|waiting for clients|DistStoreError|[Rr]endezvous"
    r"|could not resolve|Failed to resolve|The server socket has failed",
    "The server socket has failed to listen on any local network address. port: 29500, "
    "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    "torch TCPStore; needs a call that joins the job",
)  # fmt: skip
#: torch TCPStore's server: how many have come, of how many.
MISSED_CLIENTS = re.compile(r"(?P<came>\d{1,9})/(?P<all>\d{1,9}) clients joined")
PORT_TAKEN = _row(
    Kind.HINT, Cause.RENDEZVOUS,
    r"EADDRINUSE|[Aa]ddress already in use|Cannot assign requested address",
    "OSError: [Errno 98] Address already in use", "errno EADDRINUSE, EADDRNOTAVAIL of bind",
)  # fmt: skip
UNREACHED = _row(
    Kind.HINT, Cause.RENDEZVOUS,
    r"while trying to connect to|[Cc]onnection refused|No route to host|Network is unreachable"
    r"|Name or service not known|[Ff]ailed to resolve|could not resolve|failed to connect"
    r"|client socket has (?:failed|timed out)",
    "The client socket has timed out after 60000ms while trying to connect to (10.0.0.7, 29500).",
    "torch TCPStore's client",
)  # fmt: skip
JOIN_TIMED_OUT = _row(
    Kind.HINT, Cause.RENDEZVOUS,
    r"waiting for clients|clients joined|Timed out|wait timeout|timed out",
    "Timed out after 61 seconds waiting for clients. 3/4 clients joined.",
    "torch TCPStore's server: it names nobody who cannot be reached",
)  # fmt: skip
#: A peer has gone.
LOST_PEER = _row(
    Kind.CONSEQUENCE, None,
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe"
    r"|Socket closed|remote process exited|failed to recv|ncclRemoteError"
    r"|ended, so its group|Pipe: |Got completion from peer",
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]",
    "gloo, NCCL, sockets",
)  # fmt: skip
#: gloo, of any peer: whoever says so is not the one that cannot be reached.
MESH_FAILED = _row(
    Kind.CONSEQUENCE, None, r"connectFullMesh failed",
    "Gloo connectFullMesh failed with [/gloo/transport/tcp/pair.cc:146] no error",
    "gloo rendezvous/context.cc",
)  # fmt: skip
#: torch's watchdog of NCCL, of an operation that took longer than its time limit.
WATCHDOG_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: .* ran for (?P<waited_ms>\d+) milliseconds"
)
#: torch, of a launch on a communicator that was aborted, where no failure is given as the reason.
ABORTED = re.compile(r"NCCL communicator was aborted on rank \d+\.?\s*(?:\n|$)")
#: The process that the kernel killed for want of memory.
KILLED_PROCESS = _row(
    Kind.ROOT, Cause.OOM_KILLED,
    r"[Kk]illed process (\d+)",
    "Out of memory: Killed process 4242 (python3) total-vm:91827364kB, anon-rss:8123456kB",
    "Linux mm/oom_kill.c",
)  # fmt: skip
#: Slurm's step manager, of what the kernel killed of a step's tasks (src/plugins/task/cgroup).
OOM_EVENTS = re.compile(r"slurmstepd: error: Detected (\d{1,9}) oom[-_]kill event")
#: The device's address on the bus, the number, and the process where one is named.
XID = _row(
    Kind.ROOT, Cause.GPU_FAULT,
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<number>\d+)"
    r"(?:, pid='?(?P<pid>\d+)'?)?",
    "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.",
    "NVIDIA's driver in the kernel's log; docs.nvidia.com/deploy/xid-errors",
)  # fmt: skip
#: The peer's address, the status of ibv_wc, and the device where NCCL names it.
COMPLETION = _row(
    Kind.ROOT, Cause.FABRIC_STALLED,
    r"NET/IB\w* ?: ?(?:(?P<local>[\w.-]+:\d+)[: ]+)?Got completion from peer (?P<peer>\S+) with "
    # Status 5 is what is flushed after another had failed.
    r"(?:status=|error )(?P<status>(?!5\b)\d+)(?:.*?\bhca (?P<device>[\w.:-]+))?",
    "NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> with status=12 opcode=0 "
    "len=0 vendor err 129 (Recv) localGid fd00::22 remoteGidsfd00::1f hca mlx5_4",
    "NCCL transport/net_ib.cc (NVIDIA/nccl#1405, #1664, #1814)",
    between_ranks=True,
)  # fmt: skip

# -- all rows; the first that matches of its kind is taken

#: Words of CUDA for errors after which a context is of no use any more (driver API 214 to 720).
_STICKY = (
    r"an illegal memory access was encountered|an illegal instruction was encountered"
    r"|unspecified launch failure|misaligned address|invalid program counter"
    r"|operation not supported on global/shared address space"
    r"|the launch timed out and was terminated|device-side assert triggered"
)
#: The same for faults of the device itself.
_BROKEN = (
    r"uncorrectable ECC error encountered|uncorrectable NVLink error|hardware stack error"
    r"|GPU has fallen off the bus|GPU is lost|Invalid access of peer GPU memory over nvlink"
)

# fmt: off
ROWS: tuple[ErrorText, ...] = (
    _row(
        Kind.ROOT, Cause.GPU_FAULT,
        rf"(?:CUDA error|Triton Error \[CUDA\]|Cuda failure(?: \d+)?):? '?(?:{_BROKEN})",
        "[PG 0 (default_pg) Rank 12] Process group watchdog thread terminated with exception: "
        "CUDA error: uncorrectable ECC error encountered",
        "cudaErrorECCUncorrectable 214, NvlinkUncorrectable 220 ... (pytorch#113128, #58155)",
        sticky=True),
    # Monitors print these as well, of any GPU of the host, and live on.
    _row(
        Kind.ROOT, Cause.GPU_FAULT,
        r"GPU is lost|Unable to determine the device handle for GPU",
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
        "NVML, nvidia-smi (hivemind#509, LLaVA#1466)"),
    _row(
        Kind.ROOT, None,
        rf"(?:CUDA error|Triton Error \[CUDA\]|HIP error|Cuda failure(?: \d+)?):? '?(?:{_STICKY})",
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with "
        "exception: CUDA error: an illegal memory access was encountered",
        "torch c10/cuda/CUDAException.cpp, as it is raised, or found by the watchdog "
        "(vllm#17098, pytorch#152780); NCCL: Last error: Cuda failure 700 '...' (pytorch#131755)",
        sticky=True),
    _row(
        Kind.ROOT, Cause.SHM_EXHAUSTED,
        r"insufficient shared memory|unable to (?:write to file|allocate shared memory)"
        r".*(?:/torch_|shm)|(?:/dev/shm|shared memory object).*No space left"
        r"|No space left.*/dev/shm",
        "RuntimeError: unable to write to file </torch_77_123_0>: No space left on device (28)",
        "torch MapAllocator.cpp, DataLoader"),
    _row(
        Kind.ROOT, Cause.SHM_EXHAUSTED,
        r"NCCL WARN .*(?:/dev/shm/nccl-.*No space left|posix_fallocate failed ?: No space left)",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888), "
        "error: No space left on device (28)",
        "NCCL misc/shmutils.cc (NVIDIA/nccl#525): what it raises then may not say why",
        sticky=True),
    _row(
        Kind.ROOT, Cause.GPU_OOM,
        r"NCCL WARN (?:.*Cuda failure(?: \d+)? '?out of memory|Failed to CUDA \w+alloc)",
        "NCCL WARN Cuda failure 'out of memory'",
        "NCCL alloc.h (NVIDIA/nccl#1235): what it raises then may not say why",
        sticky=True),
    _row(
        Kind.ROOT, Cause.LOADER_WORKER_DIED,
        r"DataLoader worker \(pid(?:\(s\))? [^)]*\) "
        r"(?:is killed by signal|exited unexpectedly)",
        "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.",
        "torch utils/data"),
    _row(
        Kind.ROOT, Cause.GPU_OOM,
        r"CUDA out of memory|HIP out of memory|OutOfMemoryError|Failed to CUDA \w+alloc"
        r"|(?:CUDA error|Cuda failure(?: \d+)?):? '?out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "torch CUDACachingAllocator; NCCL: Cuda failure 2 'out of memory'"),
    _row(
        Kind.ROOT, Cause.DISK_FULL,
        NO_SPACE_TEXT,
        "OSError: [Errno 28] No space left on device: '/data/x'", "errno ENOSPC, EDQUOT"),
    _row(
        Kind.ROOT, Cause.FD_EXHAUSTED, r"Too many open files|\[Errno 24\]|EMFILE",
        "OSError: [Errno 24] Too many open files", "errno EMFILE"),
    _row(
        Kind.ROOT, Cause.PIDS_EXHAUSTED,
        r"can't start new thread|Resource temporarily unavailable.*(?:fork|clone)"
        r"|BlockingIOError: \[Errno 11\]",
        "RuntimeError: can't start new thread", "Python; errno EAGAIN of clone"),
    COMPLETION,
    _row(
        Kind.ROOT, Cause.FABRIC_STALLED,
        r"NET/IB\w* ?: (?:\S+ )?Got async event : local catastrophic error",
        "NCCL WARN NET/IB : mlx5_0:1 Got async event : local catastrophic error",
        "NCCL transport/net_ib.cc (NVIDIA/nccl#230)", between_ranks=True),
    _row(
        Kind.ROOT, None,
        r"double free or corruption|(?:free|malloc|realloc|munmap_chunk)\(\): (?:invalid|corrupt)"
        r"|corrupted size vs\. prev_size|\*\*\* stack smashing detected|std::bad_alloc",
        "double free or corruption (!prev)", "glibc malloc, libstdc++, before they abort",
        sticky=True),
    _row(
        Kind.ROOT, None,
        r"Pair is not connected \(\S+ <--> \[none\]\)|state_ >= CONNECTED\. 1 vs ",
        "[enforce fail at /gloo/transport/tcp/pair.cc:801] state_ >= CONNECTED. 1 vs 4. Pair is "
        "not connected ([127.0.0.1]:47495$0 <--> [none])",
        "gloo transport/tcp/pair.cc: a pair that was never connected, which is that of a rank "
        "with itself (seen with isend and irecv of torch 2.13)"),
    # Whatever NCCL itself met in CUDA: peers say ncclRemoteError.
    _row(
        Kind.ROOT, None, r"ncclUnhandledCudaError|Cuda failure(?: \d+)? '",
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 700 'an illegal memory access was encountered'",
        "NCCL in torch's DistBackendError (NVIDIA/nccl#1410, #1029)"),
    _row(
        Kind.ROOT, None, r"ncclInvalidUsage|ncclInvalidArgument",
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
        "NCCL: what the caller itself asked for"),
    REFUSED_SIZE,
    MISMATCH_FOUND,
    UNLIKE_MODELS,
    MISSED_BARRIER,
    AT_BARRIER,
    RANKS_THAT_FAILED,
    MESH_FAILED,
    _row(
        Kind.CONSEQUENCE, None,
        r"Timed out waiting|Application timeout|[Ww]ait timeout|collective operation timeout"
        r"|failed to pass monitoredBarrier|timed out in monitoredBarrier|watchdog",
        "[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, "
        "OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran for 600020 "
        "milliseconds before timing out.",
        "torch ProcessGroupNCCL, ProcessGroupGloo, gloo, TCPStore (pytorch#118369)",
        gave_up=True),
    _row(
        Kind.CONSEQUENCE, Cause.STORE_LOST,
        r"Did the remote server shutdown or crash|recvValue failed|sendBytes failed"
        r"|recvBytes failed|failed to recv, got 0 bytes|recvVector failed|Failed to send|SocketImpl"
        r"|TCPStore.*(?:Broken pipe|reset by peer|closed)|client socket has failed to connect"
        # torch's own type of the store's errors; gloo's and NCCL's are others.
        r"|DistNetworkError: (?:Broken pipe|Connection reset by peer)",
        "DistNetworkError: failed to recv, got 0 bytes",
        "torch TCPStore: whoever served the store has gone"),
    LOST_PEER,
    _row(
        Kind.CONSEQUENCE, None,
        r"gloo[/\\]|preamble\.length|NCCL (?:communicator|error)|ncclSystemError"
        r"|ncclInternalError|DistNetworkError|DistBackendError",
        "NCCL communicator was aborted on rank 2.",
        "what backends raise that name no trouble of their own"),
    # Hints, each with the evidence that it needs.
    _row(
        Kind.HINT, Cause.DISK_FULL,
        r"PytorchStreamWriter failed|file write failed|unexpected pos \d+ vs \d+"
        r"|disk is full|disk I/O error|iostream error|write failed|short write",
        "RuntimeError: PytorchStreamWriter failed writing file data/0: file write failed",
        "torch.save, sqlite; needs a full disk"),
    _row(
        Kind.HINT, Cause.FD_EXHAUSTED,
        r"received 0 items of ancdata|unable to open shared memory object|can't open file"
        r"|Could not open file|unable to open file|\[Errno 2\].*(?:/dev/urandom|/proc/)|socket: "
        r"|accept: |epoll",
        "RuntimeError: received 0 items of ancdata",
        "what follows from the want of a descriptor; needs a process at its limit"),
    _row(
        Kind.HINT, Cause.PIDS_EXHAUSTED,
        r"can't start new thread|can't allocate \w+ for new thread"
        r"|Resource temporarily unavailable|\[Errno 11\]|[Tt]hread creation failed"
        r"|pthread_create failed|can't create new thread"
        r"|unable to create new (?:native )?thread|Cannot fork",
        "OpenBLAS blas_thread_init: pthread_create failed: Resource temporarily unavailable",
        "needs a control group that has refused tasks"),
    _row(
        Kind.HINT, Cause.SHM_EXHAUSTED,
        r"shared memory|/dev/shm|</?torch_\d+_|nccl-[A-Za-z0-9]{6}",
        "Error while creating shared memory segment /dev/shm/nccl-aBcDeF (size 9637888)",
        "what belongs to shared memory, a file system too; needs one that is full"),
    JOIN_FAILED,
    PORT_TAKEN,
    UNREACHED,
    JOIN_TIMED_OUT,
    PEER_AT_LOOPBACK,
)
# fmt: on


def classify(text: str, *kinds: Kind, sticky: bool = False) -> ErrorText | None:
    """The row of an error: its first root, else its first consequence; hints say nothing here.

    ``kinds`` are those to look for, ``sticky`` looks only for what no process survives: for a
    log, in which all else may be long past.
    """
    for kind in kinds or (Kind.ROOT, Kind.CONSEQUENCE):
        for row in ROWS:
            if row.kind is kind and (row.sticky or not sticky) and row.pattern.search(text):
                return row
    return None


def gave_up(text: str) -> bool:
    """True if the error says that a time limit struck."""
    return any(row.gave_up and row.pattern.search(text) for row in ROWS)


#: Libraries that ranks talk over, as their errors name themselves.
_BACKENDS = re.compile(
    r"gloo|nccl|hccl|xccl|\bucc\b|\bmpi\b|c10d|TCPStore|SocketImpl|torch\.distributed|ProcessGroup"
    r"|monitoredBarrier|Dist(?:Backend|Network|Store)Error|pair\.cc|watchdog|all_?reduce|barrier",
    re.IGNORECASE,
)


def names_backend(text: str) -> bool:
    """True if an error is one of what ranks talk over, and not of some connection of a program."""
    return _BACKENDS.search(text) is not None


@cache
def texts_of(cause: Cause, *kinds: Kind) -> re.Pattern[str]:
    """A pattern for all rows of a cause, or those of ``kinds``.

    Its groups have no names.
    """
    rows = [row for row in ROWS if row.cause is cause and (not kinds or row.kind in kinds)]
    chosen = [re.sub(r"\?P<\w+>", "?:", row.pattern.pattern) for row in rows]
    return re.compile("|".join(f"(?:{pattern})" for pattern in chosen))


def matching_line(lines: Iterable[str], pattern: re.Pattern[str]) -> str:
    """The first line that matches, at most 300 characters; "" if none does.

    Of a traceback's lines those of source code, which are indented, come last.
    """
    matching = [line for line in lines if pattern.search(line)]
    return min(matching, key=lambda line: line.startswith("    "), default="").strip()[:300]
