"""Votes on a call by the line that members are at, and then by what they do there.

Several ranks may each have a fault of their own under one number.  None of them speaks for another,
so those who do right need not be twice as many: most members are at the line of the right call, and
more than half of all make it.  Or half of all do, and most of those at the line have each argument
of it: ranks that err apart, one in the size and one in the dtype, agree in the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hanglab.analyzer.matching.missing_votes import MissingVotes
from hanglab.analyzer.matching.sequences import Signature
from hanglab.analyzer.matching.signatures import SITE


def side_at_common_line(
    sides: Sequence[Sequence[Signature]], missing_votes: MissingVotes
) -> int | None:
    """The place of the right one of ``sides``; None where no line, or no call, has most members.

    A side is the call of each of its members; its line is 0 where that is not known.
    """
    lines = Counter(call[SITE] for side in sides for call in side)
    everybody = lines.total()
    line = _most_common(lines, missing_votes)
    if not line:
        return None
    there = [[call for call in side if call[SITE] == line] for side in sides]
    second, most = sorted([0, *map(len, there)])[-2:]
    place = next(place for place, side in enumerate(there) if len(side) == most)
    if 2 * most > everybody:
        return place if missing_votes.is_majority(most, lines[line], second) else None
    if 2 * most < everybody or any(len(side) >= most for side in sides if side is not sides[place]):
        return None  # Where all go ways of their own, those of two that meet prove nothing.
    columns = zip(*(call for side in there for call in side), strict=True)
    common = tuple(_most_common(Counter(column), missing_votes) for column in columns)
    return place if there[place][0] == common else None


def _most_common(votes: Counter[int], missing_votes: MissingVotes) -> int | None:
    """The value that most members have, whatever the missing would say; None if there is none."""
    (value, count), *others = votes.most_common()
    most = others[0][1] if others else 0
    return value if missing_votes.is_majority(count, votes.total(), most) else None
