"""Calls of a group up to collectives that two ranks have in common, counted by their numbers.

A ring that was overwritten does not hold the call by which its rank left the order of its peers.
But numbers go on: the rank has issued one more of that group, or one fewer, up to whatever
collective of another group both rings still hold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from hanglab.analyzer.graph.issued_orders import IssuedCall
from hanglab.analyzer.graph.thresholds import AGREEING_COUNTS
from hanglab.analyzer.matching.program_order import Edit

#: Index of the group, sequence number.
_Mark = tuple[int, int]


class Imbalance(NamedTuple):
    #: The first rank has one call of a group too many, or too few.
    edit: Edit
    #: The first call of the group that its order holds, and the one that its peer made there.
    mine: int
    theirs: int


def find_imbalance(
    here: Sequence[IssuedCall],
    there: Sequence[IssuedCall],
    places: Collection[int],
    *,
    several: bool = False,
) -> Imbalance | None:
    """The group of ``places`` of which two ranks count otherwise up to each common collective.

    None where they differ in none, or in several, or too few collectives tell.  By one call, or by
    as many each time (``several``).
    """
    mine, theirs = _counts(here, places), _counts(there, places)
    differing = {
        mark: _difference(mark, mine[mark], theirs[mark]) for mark in mine if mark in theirs
    }
    for place, by in {found[0] for found in differing.values() if len(found) == 1}:
        others = [found for mark, found in differing.items() if mark[0] != place]
        alike = len(others) >= AGREEING_COUNTS and all(one == [(place, by)] for one in others)
        if (several or abs(by) == 1) and alike and _ends_apart(here, there, places, place, by):
            own = [found for mark, found in differing.items() if mark[0] == place]
            if own and all(len(one) == 1 and one[0][1] == -by for one in own):
                return None  # As where one of the two enters two groups in the other order.
            return _at_first_call(here, there, place, by)
    return None


def _counts(order: Sequence[IssuedCall], places: Collection[int]) -> dict[_Mark, dict[int, int]]:
    """Numbers of calls of each group that a rank had issued before each of its collectives."""
    mine = [one for one in order if one.place in places]
    last = {one.place: one.seq - 1 for one in reversed(mine)}
    found = {}
    for one in mine:
        found[one.place, one.seq] = dict(last)
        last[one.place] = one.seq
    return found


def _difference(mark: _Mark, mine: dict[int, int], theirs: dict[int, int]) -> list[tuple[int, int]]:
    """Other groups whose counts differ at a collective, each with the difference."""
    return [
        (place, count - theirs[place])
        for place, count in mine.items()
        if place != mark[0] and count != theirs.get(place, count)
    ]


def _at_first_call(
    here: Sequence[IssuedCall], there: Sequence[IssuedCall], place: int, by: int
) -> Imbalance | None:
    theirs = {one.seq: at for at, one in enumerate(there) if one.place == place}
    for at, one in enumerate(here):
        if one.place == place and one.seq - by in theirs:
            edit = Edit.ADDED if by > 0 else Edit.LEFT_OUT
            return Imbalance(edit, at, theirs[one.seq - by])
    return None


def _ends_apart(
    here: Sequence[IssuedCall],
    there: Sequence[IssuedCall],
    places: Collection[int],
    place: int,
    by: int,
) -> bool:
    """True if two ranks have come to the same end but for that call."""
    mine, theirs = (
        {one.place: one.seq for one in order if one.place in places} for order in (here, there)
    )
    both = mine.keys() & theirs.keys()
    return all(mine[one] - theirs[one] == (by if one == place else 0) for one in both)
