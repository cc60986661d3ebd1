"""The order that a group kept so far, and what it says should come next.

Training repeats itself.  Where the last operations of a group are two or more
repetitions of one pattern, the pattern tells which side of a divergence goes on
as before, and whether a rank left something out.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

#: Patterns longer than this are not looked for.
_LONGEST = 1024


def period_of(
    history: Sequence[Hashable], *, repeats: int = 2, longest: bool = False
) -> int | None:
    """Length of the shortest pattern whose last ``repeats`` repetitions end ``history``.

    ``longest``: of the longest such pattern.  A step whose beginning repeats
    itself (four microbatches, then a reduction) shows only in that one.  None if
    there is none, or if a place of the pattern is not known (None).
    """
    size = len(history)
    periods = range(1, min(size // repeats, _LONGEST) + 1)
    for period in reversed(periods) if longest else periods:
        start = size - repeats * period
        if all(
            history[i] is not None and history[i] == history[i + period]
            for i in range(start, size - period)
        ):
            return period
    return None


def continuation(history: Sequence[Hashable], count: int) -> list[Hashable]:
    """The next ``count`` operations if the pattern goes on; [] without a pattern."""
    period = period_of(history)
    if period is None:
        return []
    pattern = list(history[-period:])
    return [pattern[i % period] for i in range(count)]


def left_out(
    mine: Sequence[Hashable], peers: Sequence[Hashable], *, within: int = 256
) -> int | None:
    """How many operations ``mine`` left out of ``peers`` before its first one.

    None unless ``mine`` is what ``peers`` do, in their order, with some removed,
    the first of all among them.  ``peers`` may end sooner than ``mine``.
    """
    if not mine or not peers or mine[0] == peers[0]:
        return None
    place = 0
    removed: int | None = None
    for operation in mine:
        if place >= len(peers):
            break
        try:
            found = list(peers[place : place + within]).index(operation)
        except ValueError:
            return None
        if removed is None:
            removed = found
        place += found + 1
    return removed
