"""A limit of time for code of others, which may not come to an end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError within the block when its time is over; for the main thread alone."""

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"it took more than {seconds:g} s for one Case")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
