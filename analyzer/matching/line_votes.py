"""Votes on a call by the line that members are at, and then by what they do there.

Several ranks may each have a fault of their own under one number.  None of them speaks for another,
so those who do right need not be twice as many: most members are at the line of the right call, and
more than half of all make it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hanglab.analyzer.matching.missing_votes import MissingVotes


def side_at_common_line(sides: Sequence[Sequence[int]], missing_votes: MissingVotes) -> int | None:
    """The place of the right one of ``sides``; None where no line, or no call, has most members.

    A side is the line of each of its members, 0 where that is not known.
    """
    lines = Counter(line for side in sides for line in side)
    (line, count), *others = lines.most_common()
    if not line or not missing_votes.is_majority(
        count, lines.total(), others[0][1] if others else 0
    ):
        return None
    there = [sum(one == line for one in side) for side in sides]
    second, most = sorted([0, *there])[-2:]
    if 2 * most <= lines.total() or not missing_votes.is_majority(most, count, second):
        return None  # Where all go ways of their own, those of two that meet prove nothing.
    return there.index(most)
