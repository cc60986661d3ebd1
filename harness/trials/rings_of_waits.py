"""Ranks that wait for each other in a ring with a culprit, any of whom may be the odd one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf

from hanglab.harness.trials.faults import Fault
from hanglab.harness.trials.observation import DumpedPlay
from hanglab.harness.trials.player import Played
from hanglab.harness.trials.programs import Batch, Issue, issues_of

#: Faults that leave who waits for whom as the same fault of another rank of the ring would.
_UNTOLD = ("order", "skip", "extra", "peer")
#: How often a call has to have been followed by one other for that to be what it is followed by.
_USUAL = 2


@dataclass(frozen=True, eq=False)
class RingsOfWaits(DumpedPlay):
    """A play in which ranks wait for each other, each in a message or for one member alone.

    In a program as good as this one a rank of the ring owes what another waits for, or is the one
    that waits in what it was not to do.  Only what came before tells: a culprit that did otherwise
    than each time before, or a rank that did there as it had done.
    """

    def with_culprit(self, fault: Fault) -> set[int]:
        """Ranks of the ring with the culprit, if nothing tells them from it; it may be among them.

        Of calls in another order each could have gone first.
        """
        if fault.kind not in _UNTOLD:
            return set()
        ring = [fault.rank]
        while (other := self._awaited_by(ring[-1])) is not None and other not in ring:
            ring.append(other)
        if other != fault.rank or (fault.kind != "order" and self._is_unlike_before(fault)):
            return set()
        return {rank for rank in ring if fault.kind == "order" or self._is_new(rank)}

    def _oldest(self, rank: int) -> Played | None:
        return next((o for o in self.play.operations[rank] if o.done == inf), None)

    def _awaited_by(self, rank: int) -> int | None:
        """The one rank that lacks in the oldest operation that is open; None where several do."""
        oldest = self._oldest(rank)
        if oldest is None:
            return None
        peers = {issue.peer for issue in issues_of(oldest.step)}
        if peers == {None}:
            number = self.issued(rank, oldest.group, oldest)
            members = self.program.groups[oldest.group].members
            lacking = {m for m in members if not self._takes_part(m, oldest.group, number)}
        else:
            lacking = {peer for peer in peers if peer is not None}
        return lacking.pop() if len(lacking) == 1 else None

    def _takes_part(self, rank: int, group: str, number: int) -> bool:
        """True if a rank has come to that collective of the group, and behind nothing else."""
        return any(
            o.group == group and o.started < inf and issues_of(o.step)[0].peer is None
            and self.issued(rank, group, o) == number
            for o in self.play.operations[rank]
        )  # fmt: skip

    def _is_new(self, rank: int) -> bool:
        """True if nothing that the rank's file holds shows it come so to what it waits in."""
        oldest = self._oldest(rank)
        assert oldest is not None
        *before, last = pairwise([None, *self._calls_until(oldest)])
        return last not in before

    def _is_unlike_before(self, fault: Fault) -> bool:
        """True if the culprit went on otherwise than, from there, it did each time before."""
        planned = [
            self.seen_part(step) for step in self.program.ranks[fault.rank][fault.thread]
            if isinstance(step, Issue | Batch) and self.is_in_sight(step)
        ]  # fmt: skip
        made = [
            o for o in self.play.operations[fault.rank]
            if o.thread == fault.thread and self.is_in_sight(o.step)
        ]  # fmt: skip
        seen = [self.seen_part(one.step) for one in made]
        at = next((at for at, two in enumerate(zip(planned, seen, strict=False))
                   if two[0] != two[1]), None)  # fmt: skip
        if not at:
            return False
        followed = [
            then for one, then in pairwise(self._calls_until(made[at - 1])) if one == seen[at - 1]
        ]
        return followed.count(planned[at]) == len(followed) >= _USUAL

    def _calls_until(self, last: Played) -> list[object]:
        """Calls of the thread that the rank's file holds, the last of them ``last``."""
        kept = {entry.played for entry in self.ring(last.rank).entries}
        mine = self.play.operations[last.rank]
        return [
            self.seen_part(o.step) for o in mine
            if o.thread == last.thread and o.number <= last.number and (o in kept or o is last)
        ]  # fmt: skip
