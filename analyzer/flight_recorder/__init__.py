"""Flight Recorder dumps: from files of strangers to columns."""

from hanglab.analyzer.flight_recorder.errors import DumpError, RefusedDump
from hanglab.analyzer.flight_recorder.loading import (
    Loaded,
    Mapped,
    load_bytes,
    load_folder,
    load_many,
    map_folder,
)

__all__ = [
    "DumpError",
    "Loaded",
    "Mapped",
    "RefusedDump",
    "load_bytes",
    "load_folder",
    "load_many",
    "map_folder",
]
