"""Ranks that may have stopped with a culprit: hosts stop together for one reason."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from hanglab.harness.trials.dumps import is_group_visible
from hanglab.harness.trials.observation import DumpedPlay
from hanglab.harness.trials.player import Played
from hanglab.harness.trials.programs import Batch, Issue, issues_of


@dataclass(frozen=True, eq=False)
class StoppedTogether(DumpedPlay):
    """A play in which nobody waits but one culprit."""

    def besides(self, culprits: Set[int]) -> frozenset[int]:
        """Ranks that have not come to what a culprit alone waits in, where they are several.

        Hosts stop together for one reason (a file system, a lock, the end of their data), and
        then whoever was spared waits alone.  Not if it had gone on otherwise from some call of its,
        or otherwise than several others, all of whose calls are known, did there.
        """
        waits = [
            o for mine in self.play.operations for o in mine
            if o.done == inf and self.is_in_sight(o.step)
        ]  # fmt: skip
        if len({o.rank for o in waits}) != 1 or waits[0].rank not in culprits:
            return frozenset()
        first = waits[0]
        absent = {
            member for member in self.program.groups[first.group].members
            if self.issued(member, first.group) < self.issued(first.rank, first.group, first)
        }  # fmt: skip
        if issues_of(first.step)[0].peer is not None or len(absent) < 2 or self._unlike(first):
            return frozenset()
        if any(self._further(member, first) for member in absent) or self._unlike_peers(first):
            return frozenset()
        return frozenset(absent)

    def _further(self, member: int, first: Played) -> bool:
        """The member has issued what comes only behind that operation, from the thread of it.

        Threads keep no order among them, and stages do not send equally often.
        """
        both = (
            name for name, group in self.program.groups.items()
            if {member, first.rank} <= set(group.members) and name != first.group
            and is_group_visible(self.program, name, self.loss)
        )  # fmt: skip
        return any(
            self.issued(member, name, thread=first.thread)
            > self.issued(first.rank, name, first, thread=first.thread)
            for name in both
        )

    def _unlike(self, played: Played) -> bool:
        """Its ring shows the rank go on from a call as its program never does, and as it did."""
        kept = {entry.played for entry in self.ring(played.rank).entries}
        mine = [o for o in self.play.operations[played.rank] if o.thread == played.thread]
        seen = [self.seen_part(o.step) for o in mine[: mine.index(played) + 1] if o in kept]
        planned = [
            self.seen_part(step) for step in self.program.ranks[played.rank][played.thread]
            if isinstance(step, Issue | Batch) and self.is_in_sight(step)
        ]  # fmt: skip
        steps = set(pairwise(planned))
        usual = {one for one, then in pairwise(seen) if (one, then) in steps}
        return any(one in usual for one, then in pairwise(seen) if (one, then) not in steps)

    def _unlike_peers(self, played: Played) -> bool:
        """Two others or more called alike, by their whole rings, and the rank otherwise.

        Of a program in which it has no order of its own.
        """
        thread = played.thread
        mine = self._whole_order(played.rank, thread)
        alike = [
            rank for rank in range(self.program.size)
            if rank != played.rank and self._plan(rank, thread) == self._plan(played.rank, thread)
        ]  # fmt: skip
        orders = [one for one in (self._whole_order(r, thread) for r in alike) if one is not None]
        if mine is None:
            return False
        unlike = sum(any(a != b for a, b in zip(mine, one, strict=False)) for one in orders)
        return unlike > max(1, len(orders) // 2)

    def _plan(self, rank: int, thread: int) -> list[object]:
        threads = self.program.ranks[rank]
        return [
            self.seen_part(step) for step in (threads[thread] if thread < len(threads) else ())
            if isinstance(step, Issue | Batch) and self.is_in_sight(step)
        ]  # fmt: skip

    def _whole_order(self, rank: int, thread: int) -> list[object] | None:
        """Calls of the thread, by the rank's ring; None where that does not hold all of them."""
        ring = self.ring(rank)
        if rank in self.loss.missing or ring.dropped or self.loss.active_only:
            return None
        kept = {entry.played for entry in ring.entries}
        return [
            self.seen_part(o.step)
            for o in self.play.operations[rank]
            if o.thread == thread and o in kept
        ]
