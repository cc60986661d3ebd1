"""Votes that are missing under a number: calls not known that could turn the minority."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.matching.calls import UnknownCall
from hanglab.analyzer.matching.sequences import Sequences
from hanglab.analyzer.matching.summary import GAP


def outvotes(votes: int, others: int) -> bool:
    """True if so many ranks tell that the others are wrong.

    Several others went their way by one branch, as the votes may have gone theirs: these must be
    twice as many then.
    """
    return votes > others and (others < 2 or votes >= 2 * others)


@dataclass(frozen=True)
class MissingVotes:
    """Members that say nothing under a number, and how many more there may be."""

    unknown_calls: dict[int, UnknownCall]
    unlisted: int

    @property
    def missing(self) -> int:
        return len(self.unknown_calls) + self.unlisted

    def is_majority(self, votes: int, facts: int, most: int | None = None) -> bool:
        """True if ``votes`` of ``facts`` are the majority, whatever the missing ones would say.

        ``most``: as many as are of one other mind; all others unless given.
        """
        return 2 * votes > facts + self.missing and outvotes(
            votes, facts - votes if most is None else most
        )

    def may_be_majority(self, votes: int, facts: int) -> bool:
        """True if ``votes`` may be the majority, once the missing ones are heard."""
        return self.missing > 0 and 2 * (votes + self.missing) > facts + self.missing

    def confirms_pattern(self, steady: int, other: int, facts: int, *, is_ahead: bool) -> bool:
        """True if missing votes leave it as the past has it: the ``steady`` are right.

        Where the others may be the majority, a place that is new to all may be where everybody
        should have gone by now; whoever ``is_ahead`` ahead in the common order, and is not more
        than those who kept to it, left something out.
        """
        return not self.may_be_majority(other, facts) or (is_ahead and other <= steady)


def missing_votes_at(sequences: Sequences, seq: int) -> MissingVotes:
    """The votes that are missing under ``seq``; who provably has yet to come has none."""
    group = sequences.group
    unknown_calls: dict[int, UnknownCall] = {}
    for rank in (*group.members, *group.possible):
        if sequences.code(rank, seq) != GAP:
            continue
        progress = group.progress.get(rank)
        entered = progress.has_entered(seq) if progress is not None else None
        if entered is False:
            continue
        part = progress.part if progress is not None else None
        if not entered or part is None:
            unknown_calls[rank] = UnknownCall.NO_EVIDENCE
        elif part.active_only:
            unknown_calls[rank] = UnknownCall.FINISHED
        else:
            unknown_calls[rank] = (
                UnknownCall.OVERWRITTEN if seq < part.base else UnknownCall.NO_EVIDENCE
            )
    return MissingVotes(unknown_calls, group.unlisted)
