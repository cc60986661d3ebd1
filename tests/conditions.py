"""Waiting for what has to come true: in tests a condition is waited for, never a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds after which only a broken machine has not got there: less than a test may take, so that
#: it is said what did not come.
PATIENCE_S = 280.0
#: Seconds between two looks.
_PAUSE = 0.02


def wait_for(condition: Callable[[], T], what: str = "", seconds: float = PATIENCE_S) -> T:
    """The condition's value once it is true; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or condition}"
        time.sleep(_PAUSE)
    return value
