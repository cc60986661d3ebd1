"""File systems that have no room left."""

from __future__ import annotations

from hanglab.analyzer.facts.error_texts import Kind, texts_of
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.file_system_space import Space
from hanglab.recorder.case.host_records import FileSystem

#: What belongs to shared memory, which is a file system too.
SHARED_MEMORY = texts_of(Cause.SHM_EXHAUSTED, Kind.HINT)


def is_full(space: FileSystem) -> bool:
    """True if nothing more goes in.  One that is 99 % full still has room."""
    return Space(space.size_bytes, space.free_bytes, space.inodes, space.free_inodes).is_full
