"""Device time of sections, and of single kernels.

Sections: a pair of CUDA events on the current stream, read once the device has
passed them.  The job is never made to wait for the device.

Kernels: torch's profiler (Kineto) around one entry in many.  That entry alone
waits for its own kernels, since what has not run when the profiler stops would
not be seen.  It is left out of the section's timings.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

#: Communication kernels wait for the other ranks: their time says nothing of this one.
_COMMUNICATION = ("nccl", "rccl", "nvshmem")
#: Timings that are kept of a kernel.
KERNEL_WINDOW = 8192


class EventPair:
    """Events around one entry of a section."""

    __slots__ = ("_clock", "_first", "_last")

    def __init__(self, clock: DeviceClock, first: Any, last: Any) -> None:
        self._clock = clock
        self._first = first
        self._last = last

    def end(self, pending: deque[EventPair]) -> None:
        """The entry is over; what it launched may still be running, so it is kept for later."""
        try:
            self._last.record()
        except Exception:  # the stream is being captured, or the device has failed
            return
        if len(pending) == pending.maxlen:
            self._clock.reuse(pending.popleft())
        pending.append(self)

    def milliseconds(self) -> float | None:
        """Device time between the events; None while the device has not passed them."""
        if not self._last.query():
            return None
        return float(self._first.elapsed_time(self._last))


class DeviceClock:
    """Makes event pairs and uses them again.  One per process."""

    _shared: DeviceClock | None = None

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: deque[EventPair] = deque(maxlen=4096)

    @classmethod
    def of_process(cls) -> DeviceClock | None:
        """The clock, once the job itself has begun to use a CUDA device."""
        if cls._shared is None:
            cuda = getattr(sys.modules.get("torch"), "cuda", None)
            if cuda is None or not cuda.is_initialized():
                return None
            cls._shared = cls(cuda)
        return cls._shared

    def begin(self) -> EventPair | None:
        """Events whose first is recorded on the current stream; None where that cannot be."""
        try:
            if self._cuda.is_current_stream_capturing():
                return None
            if self._free:
                pair = self._free.popleft()
            else:
                event = self._cuda.Event
                pair = EventPair(self, event(enable_timing=True), event(enable_timing=True))
            pair._first.record()
        except Exception:  # the device has failed: the job will hear of it, but not from us
            return None
        return pair

    def reuse(self, pair: EventPair) -> None:
        self._free.append(pair)

    def read(self, pairs: deque[EventPair]) -> Iterator[float]:
        """Take the times of the pairs that the device has passed, in order."""
        with contextlib.suppress(Exception):
            while pairs:
                time = pairs[0].milliseconds()
                if time is None:
                    return
                self.reuse(pairs.popleft())
                yield time


def kernel_key(name: str, metadata: str) -> str:
    """Name with grid and block: the same code on another shape is another kernel.

    ``metadata`` is the inside of a JSON object, as Kineto's events have it, or the object.
    """
    text = metadata.strip()
    try:
        facts = json.loads(text if text.startswith("{") else "{" + text + "}")
    except ValueError:
        facts = {}
    grid, block = facts.get("grid"), facts.get("block")
    return f"{name} grid {grid} block {block}" if grid and block else name


def kernel_times(events: Iterable[Any]) -> dict[str, list[float]]:
    """Kernel -> durations in milliseconds, from Kineto's events.

    Only what ran on a device counts; communication, copies and annotations do not.
    """
    found: dict[str, list[float]] = {}
    for event in events:
        if event.activity_type() != "kernel":
            continue
        name = event.name()
        if any(word in name.lower() for word in _COMMUNICATION):
            continue
        key = kernel_key(name, event.metadata_json())
        found.setdefault(key, []).append(event.duration_ns() / 1e6)
    return found
