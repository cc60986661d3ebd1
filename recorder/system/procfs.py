"""Readings of a process from /proc.  Everything returns None or less where it has gone."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from hanglab.recorder.system.kernel_files import read as _read

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: A flag of threads of the kernel, from its sched.h.
_PF_KTHREAD = 0x00200000
_LONGEST_ENVIRONMENT = 1 << 20


class Stat(NamedTuple):
    """The part of /proc/PID/stat that matters here."""

    name: str
    #: R, S, D, T, t, Z, X ...
    state: str
    ppid: int
    #: User and system time, in seconds.
    cpu_s: float
    #: The same of its children that have ended, and that it has waited for.
    reaped_s: float
    threads: int
    #: In clock ticks since boot: tells a process from a later one with its id.
    started: int
    rss_bytes: int
    #: As waitpid gives it, of a zombie; 0 where it may not be read.
    exit_status: int
    #: Pages that had to be fetched from a disk.
    major_faults: int
    #: A thread of the kernel, which runs no program.
    kernel: bool


def stat(pid: int, thread: int | None = None) -> Stat | None:
    """Read the status line of a process, or of one of its threads."""
    data = _read(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat")
    if data is None:
        return None
    # The name may hold spaces and parentheses.
    head, _, tail = data.rpartition(")")
    fields = tail.split()
    if len(fields) < 50:
        return None
    return Stat(
        name=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICK,
        reaped_s=(int(fields[13]) + int(fields[14])) / _TICK,
        threads=int(fields[17]),
        started=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE,
        exit_status=int(fields[49]),
        major_faults=int(fields[9]),
        kernel=bool(int(fields[6]) & _PF_KTHREAD),
    )


def state(pid: int) -> str:
    """The state's letter; "" where there is no such process."""
    found = stat(pid)
    return "" if found is None else found.state


def has_ended(pid: int) -> bool:
    """True if the process is gone, or only waits to be collected."""
    return state(pid) in ("", "Z", "X")


def everyone() -> list[int]:
    """Every process of this namespace, zombies too, in ascending order."""
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    return []


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with; empty where it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read(_LONGEST_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, mark, value in pairs if mark}


def status(pid: int) -> dict[str, str]:
    """Fields of its /proc/PID/status; empty where it has gone."""
    lines = (_read(f"/proc/{pid}/status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def soft_limits(pid: int) -> dict[str, int]:
    """Soft limits; those without a limit are left out."""
    found = {}
    for line in (_read(f"/proc/{pid}/limits") or "").splitlines()[1:]:
        soft = line[26:].split()[:1]
        if soft and soft[0].isdecimal():
            found[line[:26].strip()] = int(soft[0])
    return found


#: The calling thread, where a process is named by its number otherwise.
THIS_THREAD = "thread-self"


def run_and_delay_ns(process: int | str) -> tuple[int, int] | None:
    """Nanoseconds that the process's main thread has run, and waited for a processor to run on.

    None where the kernel does not count.
    """
    fields = (_read(f"/proc/{process}/schedstat") or "").split()
    return (int(fields[0]), int(fields[1])) if len(fields) >= 2 else None


def wanted_s(pid: int) -> float | None:
    """Seconds that the process's main thread has run or waited for a processor to run on.

    On a crowded host a thread that never waits for anything else still gets only
    a part of a core.
    """
    both = run_and_delay_ns(pid)
    return None if both is None else sum(both) / 1e9


def owner(pid: int) -> tuple[int, int] | None:
    """User and group that the process runs as."""
    try:
        status = os.stat(f"/proc/{pid}")
    except OSError:
        return None
    return status.st_uid, status.st_gid


def network_namespace(pid: int) -> str:
    """Network namespace of the process, by its link; "" where it has gone or may not be read."""
    return _link(f"/proc/{pid}/ns/net")


def process_namespace(pid: int | str) -> str:
    """Namespace of process numbers of the process, or of ``self``; "" as for the network's."""
    return _link(f"/proc/{pid}/ns/pid")


def executable(pid: int) -> str:
    """Path of the program that the process runs; "" where it has gone or may not be read."""
    return _link(f"/proc/{pid}/exe")


def open_file(pid: int, descriptor: int) -> str:
    """Path, or kind and inode, of what a descriptor stands for; "" where it does for nothing."""
    return _link(f"/proc/{pid}/fd/{descriptor}")


def mapped_files(pid: int) -> set[str]:
    """Paths that are mapped into the process; none where they may not be read."""
    lines = (_read(f"/proc/{pid}/maps") or "").splitlines()
    return {line[at:] for line in lines if (at := line.find("/")) >= 0}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def io_bytes(pid: int) -> tuple[int, int] | None:
    """Bytes that the process has read and written by system calls, files and pipes alike."""
    return _io(f"/proc/{pid}/io")


#: Name of the thread that serves torch's store to all ranks; peers that wait keep it busy.
_STORE_THREAD = "pt_tcpstore"


def threads(pid: int) -> list[int]:
    """All threads of the process; none once it has gone."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def store_threads(pid: int) -> list[int]:
    """Threads of the process that serve the job's store."""
    names = ((tid, _read(f"/proc/{pid}/task/{tid}/comm") or "") for tid in threads(pid))
    return [tid for tid, name in names if name.startswith(_STORE_THREAD)]


def thread_io_bytes(pid: int, tid: int) -> tuple[int, int]:
    """Bytes read and written by one thread; nothing where it has gone."""
    return _io(f"/proc/{pid}/task/{tid}/io") or (0, 0)


#: What a process reads the questions from that the kernel has for a file system of its own.
_FILE_SERVICE = "/dev/fuse"


def serves_files(pid: int) -> bool:
    """True if the process serves a file system (FUSE), by its open files."""
    with contextlib.suppress(OSError):
        names = os.listdir(f"/proc/{pid}/fd")
        return any(open_file(pid, int(name)) == _FILE_SERVICE for name in names)
    return False


def _io(path: str) -> tuple[int, int] | None:
    data = _read(path)
    if data is None:
        return None
    values = {}
    for line in data.splitlines():
        name, _, value = line.partition(":")
        if value.strip().isdecimal():
            values[name] = int(value)
    if "rchar" not in values or "wchar" not in values:
        return None
    return values["rchar"], values["wchar"]


def wchan(pid: int) -> str:
    """Kernel function in which the process sleeps; "" if it does not or nobody says."""
    name = _read(f"/proc/{pid}/wchan") or ""
    return "" if name == "0" else name


def open_fds(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def command_line(pid: int) -> list[str]:
    data = _read(f"/proc/{pid}/cmdline")
    return data.split("\0")[:-1] if data else []


def descendants(roots: list[int]) -> dict[int, list[int]]:
    """Living and dead-but-unreaped descendants of each root, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in everyone():
        if (found := stat(pid)) is not None:
            children.setdefault(found.ppid, []).append(pid)
    out = {}
    for root in roots:
        below: list[int] = []
        front = [root]
        while front:
            front = [child for parent in front for child in sorted(children.get(parent, ()))]
            below += front
        out[root] = below
    return out
