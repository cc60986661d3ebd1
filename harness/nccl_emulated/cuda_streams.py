"""Streams and events of ``torch.cuda``: all streams of the host are the one emulated stream.

So a stream of the script's own never overlaps with another one, which a GPU might allow.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from hanglab.harness.nccl_emulated.device import current_device
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.stream import current_stream


class Event:
    """A moment of the stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._before: list[DeviceOperation] = []
        self._recorded = 0.0

    def record(self, stream: object = None) -> None:
        self._before = current_stream().frontier
        self._recorded = time.time()

    def query(self) -> bool:
        return all(one.done for one in self._before)

    def synchronize(self) -> None:
        current_device().wait_for(self._before)

    def wait(self, stream: object = None) -> None:
        for one in self._before:
            current_stream().wait(one)

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds between two moments, by when the device had come to them."""
        return (other._reached() - self._reached()) * 1000

    def _reached(self) -> float:
        return max([self._recorded, *(one.completed_ns / 1e9 for one in self._before)])


class Stream:
    """A name for the one stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.priority = 0

    def synchronize(self) -> None:
        current_stream().synchronize()

    def query(self) -> bool:
        return not current_stream().frontier

    def wait_stream(self, stream: object) -> None:
        """Do nothing: the other stream is the same one."""

    def wait_event(self, event: Event) -> None:
        event.wait()

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to go back to."""


_ONLY = Stream()


def current() -> Stream:
    return _ONLY


@contextlib.contextmanager
def use_stream(stream: Stream | None) -> Iterator[None]:
    yield
