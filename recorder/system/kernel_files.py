"""Reading the kernel's small files: None or less where they are absent."""

from __future__ import annotations

import os
from itertools import islice

#: Descriptors of one process that are looked at: some hold a million.
_MOST_DESCRIPTORS = 4096
LIMITLESS = 1 << 62
#: Bytes that are asked for at once.
_BLOCK = 1 << 14


def read(path: str) -> str | None:
    # Thousands are read a minute, of some hundred bytes each: Python's layers of files and of
    # text would cost more than the kernel's answer.
    blocks = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while block := os.read(descriptor, _BLOCK):
                blocks.append(block)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return b"".join(blocks).decode("utf-8", "replace")


def number(path: str) -> int | None:
    """The one number in a file; None also for ``max`` and for what stands for no limit."""
    text = (read(path) or "").strip()
    if not text.isdecimal():
        return None
    value = int(text)
    return value if value < LIMITLESS else None


def numbers(path: str) -> dict[str, int]:
    """Lines of a name and a number, as in ``cpu.stat``, ``memory.events`` and ``vmstat``."""
    found = {}
    for line in (read(path) or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1])
    return found


def count_descriptors(pid: int) -> int | None:
    """Number of descriptors that a process has open."""
    try:
        # From Linux 6.2 on; before, the size of the folder is 0.
        return os.stat(f"/proc/{pid}/fd").st_size or len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def descriptors(pid: int) -> list[int]:
    """The lowest open descriptors of a process, 4,096 at most."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return sorted(int(entry.name) for entry in islice(entries, _MOST_DESCRIPTORS))
    except OSError:
        return []
