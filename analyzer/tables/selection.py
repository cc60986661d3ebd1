"""Selections of ranks and sequence numbers, as people write them."""

from __future__ import annotations

import re

_PART = re.compile(r"\s*(\d{1,12})\s*(?:-\s*(\d{1,12})\s*)?\Z")
_MOST = 1_000_000


def parse_numbers(text: str) -> frozenset[int]:
    """``"0,3-5"`` as {0, 3, 4, 5}.  Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, last = _bounds(part)
        if len(found) + last - first >= _MOST:
            raise ValueError(f"{text!r} names too many numbers")
        found.update(range(first, last + 1))
    return frozenset(found)


def parse_range(text: str) -> tuple[int, int]:
    """``"10-20"`` as (10, 20), ``"7"`` as (7, 7).  Raises ValueError."""
    return _bounds(text)


def _bounds(text: str) -> tuple[int, int]:
    match = _PART.match(text)
    if match is None:
        raise ValueError(f"{text!r} is neither a number nor a range such as 3-5")
    first = int(match.group(1))
    last = int(match.group(2)) if match.group(2) else first
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return first, last
