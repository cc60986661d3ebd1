"""File systems that have no room left."""

from __future__ import annotations

from hanglab.analyzer.facts.error_texts import Kind, texts_of
from hanglab.analyzer.facts.thresholds import (
    FULL_DISK_BYTES,
    FULL_DISK_LEAST_BYTES,
    FULL_DISK_SHARE,
)
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.host_records import FileSystem

#: What belongs to shared memory, which is a file system too.
SHARED_MEMORY = texts_of(Cause.SHM_EXHAUSTED, Kind.HINT)


def is_full(space: FileSystem) -> bool:
    """True if nothing more goes in.  One that is 99 % full still has room."""
    if space.free_bytes is not None and space.size_bytes:
        if space.free_bytes <= min(
            FULL_DISK_BYTES, max(FULL_DISK_SHARE * space.size_bytes, FULL_DISK_LEAST_BYTES)
        ):
            return True
    return space.free_inodes == 0
