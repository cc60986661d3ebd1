"""All heuristics: hanglab's own detectors, and anybody's that are installed, by entry point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import walk_packages

from hanglab.analyzer import causes
from hanglab.analyzer.catalogue import HEURISTICS
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.proposal import Heuristic, Proposal, is_detector


@cache
def heuristics() -> tuple[tuple[str, Heuristic], ...]:
    """Heuristics by name, so that their order of running never depends on the machine.

    One of another distribution that cannot be imported raises why when it is called.
    """
    found = dict(_own())
    for point in entry_points(group=HEURISTICS):
        found[point.value if point.name in found else point.name] = _load(point)
    return tuple(sorted(found.items()))


def _own() -> Iterator[tuple[str, Heuristic]]:
    for found in walk_packages(causes.__path__, f"{causes.__name__}."):
        module = import_module(found.name)
        for name, value in vars(module).items():
            if is_detector(value) and value.__module__ == found.name:
                yield name, value


def _load(point: EntryPoint) -> Heuristic:
    try:
        heuristic: Heuristic = point.load()
    except Exception as problem:
        error = problem

        def unavailable(facts: CaseFacts) -> Iterable[Proposal]:
            raise error.with_traceback(None)

        return unavailable
    return heuristic
