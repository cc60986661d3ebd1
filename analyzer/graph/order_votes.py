"""Votes of all ranks on the order of two that wait for each other, whichever replica they are in.

Groups of replicas are of one kind: ranks call them alike, each its own.  Where two ranks that had
called alike went on otherwise, every other rank that had called so far alike went on as one of
them, or has yet to: the fewer, all of them, left the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.missing_votes import outvotes

#: Fewest ranks that tell an order which others have left.
_VOTERS = 3


@dataclass(frozen=True)
class Vote:
    """Ranks that went on in either way; ``decided`` if the fewer left the order for sure.

    ``unknown`` is the number of those that had to come to either, and of which nothing tells.
    """

    fewer: tuple[int, ...]
    more: tuple[int, ...]
    unknown: int
    decided: bool

    def may_be_more(self, rank: int) -> bool:
        """True if as many may have gone on as one did as those who went on otherwise."""
        sides = (self.fewer, self.more) if rank in self.fewer else (self.more, self.fewer)
        return len(sides[0]) + self.unknown >= len(sides[1])

    def allows(self, deviating: Collection[int]) -> bool:
        """False for an accusation of some of those who went on alike, where several went each way.

        And of one who went on as most did, while these are not named.
        """
        sides = (self.fewer, self.more) if len(self.fewer) > 1 else (self.more,)
        return all({*side}.isdisjoint(deviating) or {*side} <= {*deviating} for side in sides)

    def side_of(self, rank: int) -> tuple[int, ...]:
        """Ranks that went on as one that left its own rounds, if they are the fewer; else ()."""
        return self.fewer if rank in self.fewer else ()


class OrderVotes:
    """Compares orders of ranks that call from one thread, as far as dumps tell, and all known."""

    def __init__(self, orders: Mapping[int, IssuedOrder], groups: Sequence[ResolvedGroup]) -> None:
        self._orders = {
            rank: mine for rank, mine in orders.items() if all(one.known for one in mine.issued)
        }
        self._kinds = kinds = [(one.group.description, len(one.members)) for one in groups]
        # Of two groups of one description that a rank is in nothing tells which is like others'.
        times = Counter((rank, kinds[n]) for n, one in enumerate(groups) for rank in one.members)
        several = {kind for (_, kind), count in times.items() if count > 1}
        self._places: list[Hashable] = [n if k in several else k for n, k in enumerate(kinds)]
        self._guessed = frozenset(n for n, one in enumerate(groups) if one.guessed)

    def of_ring(self, ring: Sequence[int], expected: Sequence[int]) -> Vote | None:
        """The vote at the first parting of two of a ring; None where too few tell."""
        silent = len(set(expected) - self._orders.keys())
        for one, other in combinations(ring, 2):
            sides = self._sides(one, other)
            if sides is None:
                continue
            fewer, more = sorted(sides[:2], key=len)
            unknown = silent + len(sides[2])
            if len(more) + unknown < _VOTERS:
                continue
            decided = outvotes(len(more), len(fewer) + unknown)
            return Vote(tuple(sorted(fewer)), tuple(sorted(more)), unknown, decided)
        return None

    def _sides(self, one: int, other: int) -> tuple[set[int], set[int], set[int]] | None:
        """Ranks that went on as each of two where these part, and those that may have, if any."""
        at = self._parting(one, other), self._parting(other, one)
        if at[0] is None or at[1] is None:
            return None
        mine = self._orders[one].issued[at[0]]
        theirs = self._orders[other].issued[at[1]]
        # What has ended, as it does where ranks have parts of their own, held nobody up.
        if mine.message or theirs.message or mine.done or theirs.done:
            return None
        if not self._guessed.isdisjoint((mine.place, theirs.place)):
            return None  # Nobody knows whose calls they are.
        # Who has no part in one of the two calls goes on to the other by right.
        able = {one, other, *self._ranks_with(self._places, mine, theirs)}
        unknown = self._ranks_with(self._kinds, mine, theirs) - able
        sides: tuple[set[int], set[int]] = ({one}, {other})
        for rank in able - {one, other}:
            came = self._came_to(rank, one, at[0]), self._came_to(rank, other, at[1])
            for side, there in zip(sides, came, strict=True):
                if there:
                    side.add(rank)
            if None in came and True not in came:
                unknown.add(rank)
        return *sides, unknown

    def _ranks_with(self, kinds: Sequence[Hashable], *calls: IssuedCall) -> set[int]:
        """Ranks that are in a group of the kind of each of some calls."""
        wanted = {kinds[call.place] for call in calls}
        return {
            rank
            for rank, order in self._orders.items()
            if wanted <= {kinds[place] for place in order.places}
        }

    def _came_to(self, rank: int, other: int, at: int) -> bool | None:
        """True if a rank called as another did up to its call at an index, and that one, too.

        None where nothing tells: it has yet to come there, or its ring does not show from where.
        """
        aligned = self._aligned(other, rank)
        if aligned is None:
            return None
        theirs, mine = aligned
        call = self._orders[other].issued[at]
        place = next((n for n, one in enumerate(theirs) if one is call), None)
        if place is None:
            return None
        if place == 0 and not (self._orders[rank].whole and self._orders[other].whole):
            return None  # Without a call that both have before it they may be in other rounds.
        alike = [*map(self._are_alike, mine, theirs)]
        if not all(alike[: place + 1]):
            return False
        # Who parts from it as well, further on, has rounds of its own, as its data give.
        return True if place < len(mine) and all(alike) else None

    def _parting(self, rank: int, other: int) -> int | None:
        """Index of the first call of a rank that is another than that of the other rank there."""
        aligned = self._aligned(rank, other)
        if aligned is None:
            return None
        mine, theirs = aligned
        for one, two in zip(mine, theirs, strict=False):
            if not self._are_alike(one, two):
                issued = self._orders[rank].issued
                return next(n for n, call in enumerate(issued) if call is one)
        return None

    def _aligned(
        self, rank: int, other: int
    ) -> tuple[Sequence[IssuedCall], Sequence[IssuedCall]] | None:
        """Orders of two ranks from a call on that both have; None where there is none."""
        if rank not in self._orders or other not in self._orders:
            return None
        mine, theirs = self._orders[rank], self._orders[other]
        if mine.whole and theirs.whole:
            return mine.issued, theirs.issued
        places = {self._mark(call): n for n, call in reversed([*enumerate(theirs.issued)])}
        for number, call in enumerate(mine.issued):
            if not call.message and self._mark(call) in places:
                return mine.issued[number:], theirs.issued[places[self._mark(call)] :]
        return None

    def _mark(self, call: IssuedCall) -> tuple[Hashable, int]:
        return (None, 0) if call.message else (self._places[call.place], call.seq)

    def _are_alike(self, one: IssuedCall, other: IssuedCall) -> bool:
        """True for one call of the program: by its number, in one group or in two of one kind."""
        if one.numbers.call != other.numbers.call or one.message != other.message:
            return False
        if one.message:
            return True
        return self._mark(one) == self._mark(other)
