"""File systems that have no room left."""

from __future__ import annotations

import re

from hanglab.analyzer.facts.thresholds import (
    FULL_DISK_BYTES,
    FULL_DISK_LEAST_BYTES,
    FULL_DISK_SHARE,
)
from hanglab.recorder.case.host_records import FileSystem

#: What belongs to shared memory, which is a file system too.
SHARED_MEMORY = re.compile(r"shared memory|/dev/shm|</?torch_\d+_|nccl-[A-Za-z0-9]{6}")


def is_full(space: FileSystem) -> bool:
    """True if nothing more goes in.  One that is 99 % full still has room."""
    if space.free_bytes is not None and space.size_bytes:
        if space.free_bytes <= min(
            FULL_DISK_BYTES, max(FULL_DISK_SHARE * space.size_bytes, FULL_DISK_LEAST_BYTES)
        ):
            return True
    return space.free_inodes == 0
