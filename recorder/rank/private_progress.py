"""Progress file of a process that nobody records: memory of its own, the same otherwise."""

from __future__ import annotations

import functools

from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import SectionFactory, section_type


@functools.lru_cache(maxsize=1)
def private_progress() -> ProgressFile:
    return ProgressFile(None)


@functools.lru_cache(maxsize=1)
def private_section() -> SectionFactory:
    """Times sections that are written into no Case."""
    return section_type(private_progress(), written=False)
