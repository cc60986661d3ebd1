"""All heuristics that are installed: hanglab's own and anybody's, by entry point."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from hanglab.analyzer.heuristics.proposal import Heuristic

GROUP = "hanglab.heuristics"


@cache
def heuristics() -> tuple[Heuristic, ...]:
    """Heuristics by name, so that their order of running never depends on the machine."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(point.load() for point in points)
