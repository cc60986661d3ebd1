"""The edit of a rank's order that what its peer does round after round tells.

Ranks stop soon after one has left their order, so that what follows there is often nothing.  Of
two orders the one that is kept goes on as in each round before; what the other rank did instead is
what comes there later, what it did last, or what comes there never.
"""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.matching.group_history import continuation, period_of
from hanglab.analyzer.matching.program_order import Edit, Parting, Token
from hanglab.analyzer.matching.thresholds import LONGEST_PATTERN


def predict_edit(mine: Sequence[Token], theirs: Sequence[Token], parting: Parting) -> Edit | None:
    """The simplest edit of the first order that its calls since the parting are by.

    None where the other order has not come as in its rounds before, or several are as simple: in
    rounds of two calls, the last one again is the next but one.
    """
    at, there = parting.mine, parting.theirs
    here = mine[at:]
    if not here or not goes_on(theirs, there):
        return None
    past = theirs[: there + 1]
    period = period_of(past) or 0
    here = here[: period + 1]  # A loop may end behind a round of it.
    expected = [*past[-1:], *continuation(past, period + len(here))]
    kept = theirs[there : there + len(expected)]
    if list(kept) != expected[: len(kept)]:
        return None  # It left its rounds as well, later on.
    left_out = _place_of(here, expected, period)
    again = at > 0 and here[0] == mine[at - 1]
    if (again or len(here) > 1) and _begins(expected, here[1:]):
        if not again and _begins(expected[1:], here[1:]):
            return None  # It may as well stand for the one that is expected there.
        return Edit.ADDED if left_out is None or left_out > 1 else None
    if left_out is None or _repeats_more_often(mine, at, expected, left_out):
        return None
    return Edit.LEFT_OUT


def goes_on(order: Sequence[Token], place: int) -> bool:
    """True if the operation there is the one that a pattern repeated until then has next."""
    return place < len(order) and continuation(order[:place], 1) == [order[place]]


def leaves_out(order: Sequence[Token], place: int) -> bool:
    """True if the operation there is one that the pattern repeated until then has later, or last.

    That is no new phase of the program, which a peer has yet to come to.
    """
    period = period_of(order[:place])
    if period is None or place >= len(order) or goes_on(order, place):
        return False
    return order[place] in order[place - period : place]


def _place_of(here: Sequence[Token], expected: Sequence[Token], period: int) -> int | None:
    """Number of operations left out for ``here`` to come; None if it does not within a round.

    At least one.
    """
    return next((n for n in range(1, period) if _begins(expected[n:], here)), None)


def _repeats_more_often(
    order: Sequence[Token], place: int, due: Sequence[Token], left_out: int
) -> bool:
    """True if an order goes on as in a loop within the round, such as over microbatches.

    It may have come to that once too often, or so often that it is no more than it had else
    ``left_out``, and have left nothing out.
    """
    here = order[place:]
    return any(
        _begins([*list(order[place - size : place]) * times, *due], here)
        for size in range(1, min(place // 2, LONGEST_PATTERN) + 1)
        if order[place - size : place] == order[place - 2 * size : place - size]
        for times in range(1, max(1, left_out // size) + 1)
    )


def _begins(whole: Sequence[Token], part: Sequence[Token]) -> bool:
    return len(part) <= len(whole) and list(whole[: len(part)]) == list(part)
