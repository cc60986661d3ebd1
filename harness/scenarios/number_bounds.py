"""Bounds of the numbers that people give, in declarations and on the command line."""

from __future__ import annotations

from typing import Final, TypeGuard

#: More than any machine has room for: what lies above it is a slip, and would
#: fill the memory before anything else could refuse it.
MOST_RANKS: Final = 4096


def is_whole(value: object) -> TypeGuard[int]:
    """True for an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)
