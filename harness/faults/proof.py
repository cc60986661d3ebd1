"""Protocol of probes, their readings, and the watch that asks until the fault was seen."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hanglab.harness.hosts import Host

#: Pause between two looks, in seconds; a probe of what is soon over has a ``pace_s`` of its own.
_PACE_S = 0.05
#: How long the effect of a fault may take to show after the job has ended by it.
_GRACE_S = 2.0

Value = str | int | float | None


@dataclass(frozen=True)
class Reading:
    """Reading of a probe at one moment.  ``proved`` says whether it shows what was to be shown."""

    proved: bool
    words: str
    values: Mapping[str, Value] = field(default_factory=dict)
    #: Wall clock of the harness, nanoseconds.
    at_ns: int = field(default_factory=time.time_ns)

    def as_json(self) -> dict[str, object]:
        return {
            "proved": self.proved,
            "words": self.words,
            "at_ns": self.at_ns,
            "values": dict(self.values),
        }


def host_gone(*hosts: Host) -> Reading | None:
    """The reading of what ended with its host; None where all of them are there."""
    if all(os.path.exists(f"/proc/{host.pid}/ns/net") for host in hosts):
        return None
    return Reading(True, "the node has gone")


class Probe(Protocol):
    """Made just before its fault strikes, so that it knows how things were without.

    Both methods may block for a second, and raise OSError where they can see nothing.
    """

    def struck(self) -> Reading:
        """Reading that is proved where the fault is, or has been, in force."""
        ...

    def ended(self) -> Reading:
        """Reading that is proved where, after it was taken back, things are as before."""
        ...


class Watch:
    """Asks a probe again and again, in a thread of its own, until it has seen the fault."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._pace_s: float = getattr(probe, "pace_s", _PACE_S)
        self._latest = Reading(False, "was not asked")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hanglab-probe", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._latest.proved:
            self._latest = look(self.probe.struck)
            if self._stop.wait(self._pace_s):
                return

    def stop(self) -> None:
        """For a fault that did not strike: what is seen counts no more."""
        self._stop.set()

    def close(self) -> Reading:
        """The last reading; looks for a moment longer where that is no proof yet."""
        self._stop.set()
        self._thread.join(10.0)
        if not self._latest.proved and not self._thread.is_alive():
            self._latest = look_until(self.probe.struck, _GRACE_S)
        return self._latest


def look(ask: Callable[[], Reading]) -> Reading:
    """The reading, or what kept the probe from having one."""
    try:
        return ask()
    except OSError as failure:
        return Reading(False, f"could not look: {failure.strerror or failure}")


def look_until(ask: Callable[[], Reading], seconds: float) -> Reading:
    """The first reading that proves, else the last one within ``seconds``."""
    until = time.monotonic() + seconds
    while True:
        reading = look(ask)
        if reading.proved or time.monotonic() > until:
            return reading
        time.sleep(_PACE_S)
