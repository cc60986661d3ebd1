"""Rights of this process by the kernel, and the room that it gives."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from hanglab.harness.capabilities.registry import Capability, checks
from hanglab.recorder.system.mount_table import space_of
from hanglab.recorder.system.procfs import status


@checks("root")
def _root() -> Capability:
    if os.geteuid() == 0:
        return Capability("root", True, "running as root")
    return Capability("root", False, f"running as user {os.geteuid()}", "run as root")


@checks("ptrace")
def _ptrace() -> Capability:
    """True if one process may look into another that is not its child, as py-spy does."""
    remedy = "sysctl kernel.yama.ptrace_scope=0, or docker run --cap-add SYS_PTRACE"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    try:
        level = int(scope.read_text())
    except (OSError, ValueError):
        level = 0
    if level >= 3 or (level and not _has_cap_sys_ptrace()):
        return Capability(
            "ptrace",
            False,
            f"kernel.yama.ptrace_scope is {level}: stacks come from inside",
            remedy,
        )
    if not _reads_a_child():
        return Capability("ptrace", False, "the memory of another process cannot be read", remedy)
    return Capability("ptrace", True, "py-spy can read stacks from outside")


def _has_cap_sys_ptrace() -> bool:
    return bool(int(status(os.getpid()).get("CapEff", "0"), 16) >> 19 & 1)


def _reads_a_child() -> bool:
    """Reads eight bytes of a child's memory, as py-spy does."""

    class IoVector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        start = Path(f"/proc/{child.pid}/maps").read_text().split("-", 1)[0]
        buffer = ctypes.create_string_buffer(8)
        here = IoVector(ctypes.addressof(buffer), 8)
        there = IoVector(int(start, 16), 8)
        libc = ctypes.CDLL(None, use_errno=True)
        read: int = libc.process_vm_readv(
            child.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0
        )
        # Where a filter of system calls refuses that one, py-spy takes the file.
        return read == 8 or _reads_file(child.pid, int(start, 16))
    except (OSError, ValueError, AttributeError):
        return False
    finally:
        child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _reads_file(pid: int, address: int) -> bool:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return len(memory.read(8)) == 8


@checks("shm")
def _shm() -> Capability:
    """Loader workers hand batches over in /dev/shm; Docker gives it 64 MiB."""
    try:
        mebibytes = (space_of("/dev/shm").free_bytes or 0) >> 20
    except OSError as failure:
        return Capability("shm", False, f"/dev/shm: {failure.strerror}", "mount a tmpfs there")
    if mebibytes < 32:
        return Capability(
            "shm",
            False,
            f"/dev/shm has {mebibytes} MiB free",
            "docker run --shm-size=1g",
        )
    return Capability("shm", True, f"/dev/shm has {mebibytes} MiB free")
