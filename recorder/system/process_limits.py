"""One rank's process: what it uses of its limits, who keeps it off a processor or in the kernel."""

from __future__ import annotations

import contextlib
import os
import platform

from hanglab.recorder.case.host_records import RankLoad, SleepingThread
from hanglab.recorder.system import procfs
from hanglab.recorder.system.kernel_files import count_descriptors, read

#: System calls on files, file systems and devices, by number, for those that hang where these do.
_CALLS = {
    "x86_64": {
        16: "ioctl",
        0: "read", 1: "write", 2: "open", 4: "stat", 5: "fstat", 6: "lstat", 17: "pread64",
        18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 40: "sendfile", 73: "flock",
        74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir",
        84: "rmdir", 87: "unlink", 89: "readlink", 137: "statfs", 138: "fstatfs", 162: "sync",
        217: "getdents64", 257: "openat", 262: "newfstatat", 263: "unlinkat", 264: "renameat",
        267: "readlinkat", 277: "sync_file_range", 285: "fallocate", 295: "preadv", 296: "pwritev",
        306: "syncfs", 316: "renameat2", 326: "copy_file_range", 332: "statx",
    },
    "aarch64": {
        29: "ioctl",
        32: "flock", 34: "mkdirat", 35: "unlinkat", 43: "statfs", 44: "fstatfs", 45: "truncate",
        46: "ftruncate", 47: "fallocate", 56: "openat", 61: "getdents64", 63: "read", 64: "write",
        65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev",
        71: "sendfile", 78: "readlinkat", 79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync",
        83: "fdatasync", 84: "sync_file_range", 267: "syncfs", 276: "renameat2",
        285: "copy_file_range", 291: "statx",
    },
}  # fmt: skip
_NAMES = _CALLS.get(platform.machine(), {})
#: Calls whose first argument is a descriptor.
_BY_DESCRIPTOR = frozenset(
    "ioctl read write fstat pread64 pwrite64 readv writev sendfile flock fsync fdatasync ftruncate"
    " fstatfs getdents64 sync_file_range fallocate preadv pwritev syncfs".split()
)
#: Calls that name a file, and which argument does; the rest of those above take none.
_BY_PATH = {
    "open": 0, "stat": 0, "lstat": 0, "access": 0, "truncate": 0, "rename": 0, "mkdir": 0,
    "rmdir": 0, "unlink": 0, "readlink": 0, "statfs": 0, "openat": 1, "newfstatat": 1,
    "unlinkat": 1, "renameat": 1, "renameat2": 1, "readlinkat": 1, "mkdirat": 1, "statx": 1,
}  # fmt: skip
_LONGEST_PATH = 1024
#: Threads of one process that are looked at.
_MOST_THREADS = 512


def load_of(rank: int, attempt: int, pid: int, sleeping: bool) -> RankLoad | None:
    """None if the process has gone.  ``sleeping``: also look at each of its threads."""
    stat = procfs.stat(pid)
    if stat is None:
        return None
    status = procfs.status(pid)
    limits = procfs.soft_limits(pid)
    run_s, wait_s = _turns(pid)
    return RankLoad(
        rank=rank,
        attempt=attempt,
        pid=pid,
        state=stat.state,
        fds=count_descriptors(pid),
        fd_limit=limits.get("Max open files"),
        processes_limit=limits.get("Max processes"),
        threads=stat.threads,
        rss_bytes=stat.rss_bytes,
        major_faults=stat.major_faults,
        voluntary_switches=_integer(status.get("voluntary_ctxt_switches")),
        involuntary_switches=_integer(status.get("nonvoluntary_ctxt_switches")),
        run_s=run_s,
        wait_s=wait_s,
        cpus=status.get("Cpus_allowed_list", ""),
        sleeping=sleeping_threads(pid) if sleeping else [],
    )


def sleeping_threads(pid: int) -> list[SleepingThread]:
    """Threads in state D, and those inside a system call on a file; the main one first."""
    found = []
    try:
        tids = sorted(
            (int(name) for name in os.listdir(f"/proc/{pid}/task")), key=lambda t: t != pid
        )
    except OSError:
        return []
    for tid in tids[:_MOST_THREADS]:
        base = f"/proc/{pid}/task/{tid}"
        stat = procfs.stat(pid, tid)
        if stat is None or stat.state not in "DS":
            continue
        name, target = _call(pid, read(f"{base}/syscall") or "")
        if stat.state == "D" or (name and _is_file(target)):
            wchan = read(f"{base}/wchan") or ""
            found.append(
                SleepingThread(tid, stat.state, "" if wchan == "0" else wchan, name, target)
            )
    return found


def _call(pid: int, text: str) -> tuple[str, str]:
    """Name of the system call on a file that a thread is in, and the file; "" each if none."""
    words = text.split()
    if len(words) < 2 or not words[0].isdecimal():
        return "", ""
    name = _NAMES.get(int(words[0]), "")
    target = ""
    if name in _BY_DESCRIPTOR:
        with contextlib.suppress(ValueError):
            target = procfs.open_file(pid, int(words[1], 16))
    elif name in _BY_PATH:
        with contextlib.suppress(OSError, ValueError, IndexError):
            target = _text_at(pid, int(words[1 + _BY_PATH[name]], 16))
    return name, target


def _text_at(pid: int, address: int) -> str:
    """A path out of a process's memory.  Raises OSError where that may not be read."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        # Less comes back where the next page does not exist.
        data = os.pread(memory.fileno(), _LONGEST_PATH, address)
    path = os.fsdecode(data.split(b"\0")[0])
    return path if path.startswith("/") else ""


def _is_file(target: str) -> bool:
    """True if a call's target is a file, or unknown to be anything else; pipes may wait long."""
    return target.startswith("/") and not target.startswith(("/dev/", "/proc/"))


def _turns(pid: int) -> tuple[float | None, float | None]:
    """Seconds that the main thread ran, and that it waited for a processor."""
    both = procfs.run_and_delay_ns(pid)
    return (None, None) if both is None else (both[0] / 1e9, both[1] / 1e9)


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
