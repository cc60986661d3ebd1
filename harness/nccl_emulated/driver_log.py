"""Lines that the driver of an emulated device writes in the kernel's log.

Nobody but the kernel writes there, so it is a file in the job's runtime folder, which the
recorder's agent reads beside the kernel's own (``recorder.system.kernel_log``).
"""

from __future__ import annotations

import contextlib
import os

from hanglab.harness.nccl_emulated.xid_numbers import XID_WORDS
from hanglab.recorder.system.kernel_log import EMULATED_LOG

#: Where the first device of a host is on the bus.
_FIRST_BUS = 0x10


def pci_address(device: int) -> str:
    """Address of a device as the driver writes it."""
    return f"PCI:0000:{_FIRST_BUS + device:02x}:00"


def write_xid(number: int, device: int) -> None:
    """Say that this process's device has met an error; nothing where no recorder runs."""
    folder = os.environ.get("HANGLAB_RUNTIME")
    if not folder:
        return
    words = XID_WORDS[number]
    line = f"NVRM: Xid ({pci_address(device)}): {number}, pid={os.getpid()}, name=python, {words}\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(folder, EMULATED_LOG), flags, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
