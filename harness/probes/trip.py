"""How long a packet takes from one node to another and back, by being refused a connection."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from hanglab.harness.faults.outside.namespaces import connect
from hanglab.harness.probes.probe import Reading

if TYPE_CHECKING:
    from hanglab.harness.launchers.docker.nodes import Node

_CLOSED = 1
_PATIENCE_S = 5.0
_TRIPS = 3
#: On a machine under load most trips take long.
_MANY_TRIPS = 30
_NEXT_TO_NOTHING = 0.1
#: Share of the delay that every one of several trips must take at least.
_MOST_OF_IT = 0.8


class TripProbe:
    """The shortest of several trips: load lengthens some, a delay all."""

    def __init__(self, here: Node, there: Node, milliseconds: float) -> None:
        self._here, self._there, self._delay = here, there, milliseconds
        self._before = self._shortest(_MANY_TRIPS)
        if self._before > milliseconds * _MOST_OF_IT:
            raise OSError(f"a trip took {self._before:.1f} ms even before")

    def struck(self) -> Reading:
        trip = self._shortest()
        return Reading(trip >= self._before + self._delay * _MOST_OF_IT, *self._said(trip))

    def ended(self) -> Reading:
        for node in (self._here, self._there):
            if not os.path.exists(f"/proc/{node.pid}/ns/net"):
                return Reading(True, "the container has gone")
        trip = self._shortest(_MANY_TRIPS)
        return Reading(trip < self._before + self._delay * _MOST_OF_IT, *self._said(trip))

    def _said(self, trip: float) -> tuple[str, dict[str, str | int | float | None]]:
        values: dict[str, str | int | float | None] = {
            "trip_ms": round(trip, 3),
            "before_ms": round(self._before, 3),
        }
        return f"a trip took {trip:.1f} ms, before the fault {self._before:.1f} ms", values

    def _shortest(self, most: int = _TRIPS) -> float:
        """Milliseconds; more trips than one are made until one takes next to no time."""
        shortest = float("inf")
        for _ in range(most):
            begun = time.monotonic()
            came = connect(self._here.pid, self._there.address, _CLOSED, _PATIENCE_S)
            if came != "refused":
                raise OSError(f"{self._there.address} is not reached: {came}")
            shortest = min(shortest, (time.monotonic() - begun) * 1e3)
            if shortest < self._delay * _NEXT_TO_NOTHING:
                break
        return shortest
