"""An input to read: a file, or bytes that are here already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.flight_recorder.discovery import Candidate, read_regular
from hanglab.analyzer.flight_recorder.errors import DumpError
from hanglab.analyzer.flight_recorder.formats import HEAD, foreign

#: A buffer of 2,000 entries has 0.4 MB.
MAX_FILE = 64 << 20
#: A foreign file up to this is told by all of it: to open one twice takes longer.
_SMALL = 4 << 20


@dataclass(frozen=True)
class DumpInput:
    """One thing to read: a file of the folder, or bytes that are already here."""

    name: str
    rank: int | None
    path: Path | None = None
    data: bytes = b""
    size: int = 0
    written_ns: int = ABSENT

    @classmethod
    def of(cls, candidate: Candidate) -> DumpInput:
        return cls(
            candidate.name,
            candidate.rank,
            candidate.path,
            size=candidate.size,
            written_ns=candidate.written_ns,
        )


def bytes_of(file: DumpInput) -> bytes:
    """Its bytes.  Raises DumpError where they cannot be a dump's, and OSError."""
    if file.size > _SMALL or (file.size == 0 and file.path is not None):
        what = foreign(file.data[:HEAD] if file.path is None else read_regular(file.path, HEAD))
        if what or file.size > MAX_FILE:
            raise DumpError(what or f"larger than any dump: {file.size} bytes")
    return file.data if file.path is None else read_regular(file.path, MAX_FILE)


def carried(file: DumpInput) -> DumpInput:
    """The file with its bytes, for who does not see it; as it is where it cannot be a dump's."""
    try:
        return replace(file, path=None, data=bytes_of(file))
    except (DumpError, OSError):
        return file
