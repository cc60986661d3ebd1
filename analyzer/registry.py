"""All heuristics that are installed: hanglab's own and anybody's, by entry point."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Heuristic, Proposal

GROUP = "hanglab.heuristics"


@cache
def heuristics() -> tuple[tuple[str, Heuristic], ...]:
    """Heuristics by name, so that their order of running never depends on the machine.

    One that cannot be imported raises why when it is called.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple((point.name, _load(point)) for point in points)


def _load(point: EntryPoint) -> Heuristic:
    try:
        heuristic: Heuristic = point.load()
    except Exception as problem:
        error = problem

        def unavailable(facts: CaseFacts) -> Iterable[Proposal]:
            raise error.with_traceback(None)

        return unavailable
    return heuristic
