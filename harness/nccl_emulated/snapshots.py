"""Looks at queues to which other threads go on adding."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def snapshot(queue: deque[Item], start: int = 0, stop: int | None = None) -> list[Item]:
    """Items of a queue from one place to before another, as of one moment."""
    while True:
        try:
            return list(islice(queue, start, stop))
        except RuntimeError:
            pass  # One was added meanwhile: a collection of garbage lets other threads run.
