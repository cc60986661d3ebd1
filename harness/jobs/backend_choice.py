"""Choice of backends: a list of them as commands take it, and where a scenario runs of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from hanglab.harness.errors import UsageError
from hanglab.harness.scenarios.declaration import Scenario
from hanglab.recorder.case.backends import RUNNABLE


def split_names(given: Iterable[str]) -> list[str]:
    """The names in lists with commas, each once."""
    words = [word.strip() for value in given for word in value.split(",")]
    return list(dict.fromkeys(word for word in words if word))


def read_backends(given: str) -> tuple[str, ...]:
    """The backends of such a list; torch's way of writing a name stands for the command line's.

    Raises UsageError for a name that is none, and for no name at all.
    """
    there = ", ".join(RUNNABLE)
    found = []
    for word in split_names([given]):
        name = word.lower().replace("_", "-")
        if name not in RUNNABLE:
            near = difflib.get_close_matches(name, RUNNABLE, n=1)
            raise UsageError(
                f"'{word}' is not one of {there}.",
                f"Did you mean {near[0]}?" if near else "Name one that is there.",
            )
        found.append(name)
    if not found:
        raise UsageError(f"No backend was named; there are {there}.", "Name one that is there.")
    return tuple(dict.fromkeys(found))


def backends_for(scenario: Scenario, asked: Sequence[str], *, first: bool = False) -> list[str]:
    """Those of ``asked`` that a scenario is for, or with ``first`` only the first of them.

    Where it is for none of them, the first that was asked for: it is skipped there, with the
    reason.
    """
    there = [backend for backend in asked if backend in scenario.backends]
    if not there:
        return [asked[0]]
    return there[:1] if first else there


__all__ = ["backends_for", "read_backends", "split_names"]
