"""The order that a group kept so far, and what it says should come next.

Training repeats itself.  Where the last operations of a group are two or more
repetitions of one pattern, the pattern tells which side of a divergence goes on
as before, and whether a rank left something out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np

from hanglab.analyzer.matching.thresholds import CONFIRMATIONS, LONGEST_PATTERN

_Call = TypeVar("_Call", bound=Hashable)


def period_of(history: Sequence[Hashable], *, repeats: int = 2) -> int | None:
    """Length of the pattern whose repetitions explain the longest end of ``history``.

    The shortest of those, and at least ``repeats`` of it.  A step whose beginning
    repeats itself (four microbatches, then a reduction) is no pattern of
    microbatches.  None if there is no pattern; a place that is not known (None)
    is like no other.
    """
    size = len(history)
    numbers: dict[Hashable, int] = {}
    known = (
        -1 - place if one is None else numbers.setdefault(one, len(numbers))
        for place, one in enumerate(history)
    )
    codes = np.fromiter(known, dtype=np.int64, count=size)
    best: int | None = None
    explained = 0
    for period in range(1, min(size // repeats, LONGEST_PATTERN) + 1):
        if codes[-1] != codes[-1 - period]:
            continue
        breaks = np.flatnonzero(codes[period:] != codes[: size - period])
        length = size - (int(breaks[-1]) + 1 if len(breaks) else 0)
        if length - period < CONFIRMATIONS:
            continue
        if length >= repeats * period and length > explained:
            best, explained = period, length
        if explained == size:
            break
    return best


def repeats_since(history: Sequence[Hashable], period: int) -> int:
    """The place from which on ``history`` repeats a pattern of that length."""
    place = len(history) - period
    while place and history[place - 1] == history[place - 1 + period]:
        place -= 1
    return place


def continuation(history: Sequence[_Call], count: int) -> list[_Call]:
    """The next ``count`` operations if the pattern goes on; [] without a pattern.

    Where a call came several times at once, and not as often each time, nothing tells how often it
    comes now.
    """
    period = period_of(history)
    if period is None or repeats_variously(history):
        return []
    pattern = list(history[-period:])
    return [pattern[i % period] for i in range(count)]


def repeats_variously(history: Sequence[_Call]) -> bool:
    """True if the last call came several times at once before, and not as often each time.

    The oldest run may have lost its beginning, so it tells only where it is the longest.
    """
    last = history[-1]
    oldest, *runs = [(call, len([*run])) for call, run in groupby(history)]
    lengths = {length for call, length in runs[:-1] if call == last}
    if oldest[0] == last and runs and oldest[1] > max(lengths, default=0):
        lengths.add(oldest[1])
    return len(lengths) > 1


def is_in_rounds(history: Sequence[_Call], call: _Call) -> bool:
    """True if the pattern repeated until then has that call, at whichever place."""
    period = period_of(history)
    return period is not None and call in history[-period:]


def next_in_rounds(history: Sequence[_Call]) -> _Call | None:
    """The next operation if most of ``history`` is rounds: a few that repeat in one are none."""
    period = period_of(history)
    if period is None or 2 * repeats_since(history, period) > len(history):
        return None
    return history[-period]


def left_out(
    mine: Sequence[_Call],
    peers: Sequence[_Call],
    *,
    within: int = 256,
    same: Callable[[_Call, _Call], bool] = operator.eq,
) -> int | None:
    """Number of operations that ``mine`` left out of ``peers`` before its first one.

    None unless ``mine`` is what ``peers`` do, in their order, with some removed,
    the first of all among them.  What it put behind its first one it has not left out, nor later
    what it still makes: rounds of a loop may be more.  ``peers`` may end sooner than ``mine``.
    """
    if not mine or not peers or same(mine[0], peers[0]):
        return None
    place = 0
    removed: int | None = None
    later: list[_Call] = []
    for operation in mine:
        if place >= len(peers):
            break
        ahead = enumerate(peers[place : place + within])
        found = next((count for count, other in ahead if same(operation, other)), None)
        if found is None:
            return None
        if removed is None:
            removed = found
            behind = mine[1 : found + 1]
            if found and all(any(same(one, other) for other in behind) for one in peers[:found]):
                return None
        else:
            later += peers[place : place + found]
        place += found + 1
    return None if any(same(one, other) for one in later for other in mine) else removed
