"""Delivery of a trace request to a process, from its turn in the queue to its end.

Kineto has room for one request.  It says that it is idle while one waits in it,
by time or for an iteration, and drops without a word whatever comes then.  So
one is handed over only when the one before has come to its end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from hanglab.recorder.profiling.configuration import lasts_s

#: Kineto writes in the turn after the one that ended the trace, and turns once a second.
_WRITES_S = 1.5
#: What one by iterations takes that is about to begin, in seconds; nobody knows.
_SOON_S = 3.0
#: One that is nobody's has gone wrong so long after its end, in seconds ...
_NO_SIGN_S = 3.0
#: ... or, if by iterations, after it was handed over.
_NO_ITERATION_S = 60.0


@dataclass(eq=False)
class TraceDelivery:
    """A configuration on its way to a process.  Times are monotonic seconds."""

    #: Whose it is; "" where nobody wants a receipt.
    order: str
    text: str
    #: Since when nothing but the process itself keeps it from being handed over.
    queued: float
    #: Where Kineto writes.
    written: Path
    delivered: float | None = None
    #: When its trace should have ended; None before it is delivered, and by iterations.
    due: float | None = None
    #: Whether the process has been seen at work since.
    begun: bool = False
    #: Whether its receipt is final, or its file there.
    settled: bool = False

    def deliver(self) -> str:
        """The text, for the process that has asked now."""
        now = time.monotonic()
        lasts = lasts_s(self.text, time.time())
        self.delivered = now
        self.due = now + lasts if lasts is not None else None
        return self.text

    @property
    def by_iterations(self) -> bool:
        return lasts_s(self.text, time.time()) is None

    def over(self, idle: bool) -> bool:
        """True if another may follow it; ``idle`` is what its process says of itself."""
        if self.delivered is None or self.settled:
            return self.settled
        if self.due is None:
            # Its receipt may have ended before it began: then it still waits in the process.
            gone = not self.order and time.monotonic() - self.delivered > _NO_ITERATION_S
            return (self.begun and idle) or self.written.exists() or gone
        if self.order:
            return False
        return (self.begun and idle) or time.monotonic() - self.due > _NO_SIGN_S

    @property
    def awaits_iteration(self) -> bool:
        """True if the process has it, and has not come to the iteration at which it begins."""
        if self.delivered is None or self.due is not None or self.begun or self.settled:
            return False
        return not self.written.exists()

    def left_s(self) -> float:
        """Seconds until it is over, as far as anybody can tell."""
        if self.settled:
            return 0.0
        if self.delivered is None:
            lasts = lasts_s(self.text, time.time())
            return _SOON_S if lasts is None else lasts + _WRITES_S
        if self.due is None:
            return _SOON_S
        return max(0.0, self.due + _WRITES_S - time.monotonic())
