"""Turning a report interval in seconds into one in steps, the same on every rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from hanglab.recorder.slowness.statistics import median

#: Gives the interval that holds for all ranks, from this rank's estimate; None as long as
#: it is not known.  With True it may wait for it, briefly.
Agree = Callable[[int, bool], "int | None"]


class IntervalTracker:
    """Counts steps and says at which of them a report is due.

    The median of the first step times gives the number of steps.  It must be one
    number for all ranks, as their reports belong together.  So nothing is due
    until the ranks have had some steps to learn of it.
    """

    #: Step times that are measured before the interval is fixed.
    INTERVAL_ESTIMATION_ITERS = 16
    #: The first step at which a report can be due.
    FIRST_ITER = INTERVAL_ESTIMATION_ITERS + 4

    def __init__(self, seconds: float, least: int, agree: Agree) -> None:
        self.time_interval = seconds
        self.current_iter = 0
        #: Steps between reports; None while it is being measured.
        self.iter_interval: int | None = None
        self._least = max(1, least)
        self._agree = agree
        self._times: list[float] = []
        self._previous: float | None = None

    def iter_increase(self) -> None:
        """A step has ended."""
        self.current_iter += 1
        if self.iter_interval is not None:
            return
        now = time.monotonic()
        if self._previous is not None and len(self._times) < self.INTERVAL_ESTIMATION_ITERS:
            self._times.append(now - self._previous)
        self._previous = now
        if len(self._times) == self.INTERVAL_ESTIMATION_ITERS:
            usual = max(median(self._times), 1e-6)
            own = max(math.ceil(self.time_interval / usual), self._least)
            self.iter_interval = self._agree(own, self.current_iter == self.FIRST_ITER)

    def is_interval_elapsed(self) -> bool:
        """True if a report is due at the present step."""
        return (
            self.iter_interval is not None
            and self.current_iter >= self.FIRST_ITER
            and self.current_iter % self.iter_interval == 0
        )
