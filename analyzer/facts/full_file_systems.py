"""File systems that have no room left."""

from __future__ import annotations

import re

from hanglab.analyzer.facts.resource_failures import MIB
from hanglab.recorder.case.host_records import FileSystem

#: What belongs to shared memory, which is a file system too.
SHARED = re.compile(r"shared memory|/dev/shm|</?torch_\d+_|nccl-[A-Za-z0-9]{6}")
#: Room below which a file system is full, in bytes and as a share of its size.
_LEFT = MIB // 4
_SHARE = 0.001


def full(space: FileSystem) -> bool:
    """True if nothing more goes in.  One that is 99 % full still has room."""
    if space.free_bytes is not None and space.size_bytes:
        if space.free_bytes <= min(_LEFT, max(_SHARE * space.size_bytes, 4096)):
            return True
    return space.free_inodes == 0
