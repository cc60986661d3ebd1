"""Messages that meet others of other rounds, whose sizes are nobody's mistake."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.graph.connected import connected
from hanglab.analyzer.matching.message_mismatches import MessageMismatch


def without_shifted(mismatches: Sequence[MessageMismatch]) -> list[MessageMismatch]:
    """Mismatches without those of which nothing tells an end, in chains that no rank is all of.

    No one rank's arguments are wrong there: messages of several meet others of other rounds, behind
    one that was left out, or is too many, or by dumps of several moments.  Pairs apart from each
    other may have the same mistake.
    """
    untold = [one for one in mismatches if one.deviating is None and not one.finished]
    shifted = {
        id(one)
        for chain in connected(untold, lambda one: (one.sender, one.receiver))
        if not set.intersection(*({one.sender, one.receiver} for one in chain))
        for one in chain
    }
    return [one for one in mismatches if id(one) not in shifted]
