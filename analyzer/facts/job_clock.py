"""One clock for what happened on several hosts, by what the recorder heard of theirs.

Clocks of hosts differ, by milliseconds where a time service runs and by
anything where none does.  What a rank raised and how it ended is laid beside
its peers' and beside the capture, so it has to be on the job's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from hanglab.analyzer.facts.thresholds import CLOCKS_APART_NS
from hanglab.recorder.case.records import ChildExit, Clock, Exit, JobRecord, ProgramEnd, Raised

Stamped = TypeVar("Stamped", Raised, Exit, ChildExit, ProgramEnd)


def ahead_of_job(job: JobRecord | None, host: str) -> int:
    """Nanoseconds by which the host's wall clock is ahead of the job's; 0 if hardly at all."""
    ahead = job.clocks_ahead_ns.get(host, 0) if job is not None else 0
    return ahead if abs(ahead) >= CLOCKS_APART_NS else 0


def on_job_clock(records: Iterable[Stamped], ahead_ns: int) -> list[Stamped]:
    """The records with their wall times as the job's clock had them."""
    if not ahead_ns:
        return list(records)
    return [
        replace(record, at=Clock(record.at.wall_ns - ahead_ns, record.at.mono_ns))
        for record in records
    ]
