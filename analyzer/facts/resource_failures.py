"""Failures for want of a resource: the rank's own error, and the line of it that tells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hanglab.analyzer.facts import error_texts
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.failures import Failure, failure_of
from hanglab.analyzer.verdict import Location
from hanglab.recorder.case.records import Raised


def own_failures(facts: CaseFacts) -> list[Failure]:
    """Failures of ranks that are nobody else's doing, the earliest first."""
    found = [t for v in facts.ranks.values() if (t := failure_of(v)) is not None]
    found = [t for t in found if not t.consequence]
    return sorted(found, key=lambda t: (t.at_ns is None, t.at_ns or 0, t.view.rank))


def raised_by(failure: Failure) -> Raised | None:
    """The exception behind the failure, where the rank itself wrote it down."""
    if failure.source != "exceptions" or not failure.view.exceptions:
        return None
    return min(failure.view.exceptions, key=lambda raised: raised.at.wall_ns)


def text_of(failure: Failure) -> str:
    """All that the error says: its whole message, and those of the errors that led to it."""
    return failure.text or failure.detail


def matching_line(failure: Failure, pattern: re.Pattern[str]) -> str:
    """The line of the error, or of what led to it, that matches; else its first."""
    return error_texts.matching_line(text_of(failure).splitlines(), pattern) or failure.detail


def failed_in_consequence(facts: CaseFacts, culprits: Iterable[int]) -> list[int]:
    """Ranks whose own end or error only follows from a peer's."""
    mine = set(culprits)
    return [
        v.rank
        for v in facts.ranks.values()
        if v.rank not in mine and (t := failure_of(v)) is not None and t.consequence
    ]


def location_of(failure: Failure) -> Location | None:
    return failure.view.location(failure.frame) if failure.frame else None


def size(number: int | None) -> str:
    """``7.5 MiB``: bytes as people read them."""
    if number is None:
        return "unknown"
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
