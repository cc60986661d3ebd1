"""Receipts: for each process what became of the request to profile it."""

from __future__ import annotations

from typing import Literal

import msgspec

from hanglab.recorder.profiling.configuration import Detail, TraceWindow

#: Longest wait for a file beyond its window, in seconds.
MAX_PATIENCE_S = 3600.0
#: ``valid`` and ``failed`` are final.
State = Literal["queued", "delivered", "active", "complete", "valid", "failed"]


class Receipt(msgspec.Struct):
    """One process's part in an order.  Times are wall time in milliseconds."""

    host: str
    pid: int
    rank: int | None
    state: State = "queued"
    #: Why it failed.
    reason: str = ""
    #: Name of the finished trace within the order.
    file: str = ""
    size: int = 0
    events: int = 0
    dropped_events: int = 0
    first_ms: float | None = None
    last_ms: float | None = None
    asked_ms: float = 0.0
    delivered_ms: float | None = None
    completed_ms: float | None = None
    #: Where the trace lies on that host.
    path: str = ""

    @property
    def final(self) -> bool:
        return self.state in ("valid", "failed")


class Selection(msgspec.Struct, frozen=True):
    """Selects processes.  Empty lists and "" mean all."""

    ranks: list[int] = []
    pids: list[int] = []
    job: str = ""


class ProfileRequest(msgspec.Struct, frozen=True):
    """One request to profile, as it comes over the wire."""

    selection: Selection = Selection()
    window: TraceWindow = TraceWindow()
    detail: Detail = Detail()
    #: Seconds after the end of the window in which the file must have come.
    patience_s: float = 30.0


class ProcessState(msgspec.Struct):
    """One registered process, as ``hanglab.status`` tells of it."""

    pid: int
    rank: int | None
    world_size: int | None
    jobs: list[str]
    command: str
    is_rank: bool
    idle: bool
    #: Seconds between its looks for something to do.
    period_s: float
    #: Until all requests that it has or that wait for it are over; 0 for none.
    free_in_s: float = 0.0
    #: Iterations per second, None where nobody counts them.
    iterations_per_s: float | None = None
    #: Iterations that it has made, None where nobody counts them.
    iterations: int | None = None
