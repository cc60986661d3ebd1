"""Whose call under a number is not known, and whether it could turn who is in the minority."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.graph.wait_for_graph import Silence
from hanglab.analyzer.matching.sequences import Sequences
from hanglab.analyzer.matching.summary import GAP


@dataclass(frozen=True)
class Voices:
    """Members that say nothing under a number, and how many more there may be."""

    silent: dict[int, Silence]
    unlisted: int

    @property
    def missing(self) -> int:
        return len(self.silent) + self.unlisted

    def outvote(self, votes: int, known: int) -> bool:
        """Whether ``votes`` of ``known`` are the majority, whatever the missing ones would say."""
        return 2 * votes > known + self.missing

    def may_outvote(self, votes: int, known: int) -> bool:
        """Whether ``votes`` may be the majority, once the missing ones are heard."""
        return self.missing > 0 and 2 * (votes + self.missing) > known + self.missing

    def bear_out(self, steady: int, other: int, known: int, *, jumped: bool) -> bool:
        """Whether missing voices leave it as the past has it: the ``steady`` are right.

        Where the others may be the majority, a place that is new to all may be where everybody
        should have gone by now; whoever ``jumped`` ahead in the common order, and is not more
        than those who kept to it, left something out.
        """
        return not self.may_outvote(other, known) or (jumped and other <= steady)


def voices_under(sequences: Sequences, seq: int) -> Voices:
    """The voices that are missing under ``seq``; who provably has yet to come has none."""
    group = sequences.group
    silent: dict[int, Silence] = {}
    for rank in (*group.members, *group.possible):
        if sequences.code(rank, seq) != GAP:
            continue
        standing = group.standings.get(rank)
        entered = standing.has_entered(seq) if standing is not None else None
        if entered is False:
            continue
        part = standing.part if standing is not None else None
        if not entered or part is None:
            silent[rank] = Silence.UNTOLD
        elif part.active_only:
            silent[rank] = Silence.FINISHED
        else:
            silent[rank] = Silence.OVERWRITTEN if seq < part.base else Silence.UNTOLD
    return Voices(silent, group.unlisted)
