"""Replicas of a pipeline beside the one whose ranks miss each other's messages.

All run one program with other groups and other peers.  Where a message has no other half, the end
that left what the ranks in its place elsewhere do is the one that departed, if the other end kept
to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder, since_first_common
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.parted_orders import PartedOrders
from hanglab.analyzer.graph.replicas import Replicas
from hanglab.analyzer.matching.program_order import Token, find_first_parting


class SiblingReplicas:
    """Ranks that exchange messages with each other, and those in their places elsewhere."""

    def __init__(self, orders: Mapping[int, IssuedOrder], replicas: Replicas) -> None:
        self._orders = orders
        self._replicas = replicas

    def find_departed(self, ranks: Iterable[int], waiting: Iterable[int]) -> LeftOrder | None:
        """The one of ``ranks`` that alone left what its siblings do; None where nothing tells.

        It is one of those ``waiting`` for the other half, or a sibling of these has ended theirs.
        """
        ranks = sorted(set(ranks))
        mine = self._replicas.of(ranks[0])
        if not (mine.issuperset(ranks) and self._orders.keys() >= set(ranks)):
            return None
        parted: dict[int, list[PartedOrders]] = {}
        kept: set[int] = set()
        overtaken: set[int] = set()
        for replica in self._replicas.all:
            siblings = {
                rank: self._orders[sibling]
                for rank in ranks
                if (sibling := self._replicas.sibling(rank, replica)) in self._orders
                and sibling is not None
            }
            if replica is mine or len(siblings) < len(ranks):
                continue
            for rank, second in siblings.items():
                first = self._orders[rank]
                found = _compare(first, second)
                if found is None:
                    kept.add(rank)
                    if _is_passed(first, second):
                        overtaken.add(rank)
                else:
                    parted.setdefault(rank, []).append(found)
        if len(parted) != 1 or kept != set(ranks) - parted.keys():
            return None
        ((rank, sides),) = parted.items()
        if not (overtaken or rank in waiting) or len({one.parting.mine for one in sides}) > 1:
            return None
        return _departure(rank, sides)


def _departure(rank: int, sides: Sequence[PartedOrders]) -> LeftOrder:
    longest = max(sides, key=lambda side: len(side.theirs.issued))
    here, there = longest.calls
    edits = [one.parting.proved | one.parting.possible for one in sides]
    proved = frozenset.intersection(*edits) & frozenset().union(*(s.parting.proved for s in sides))
    predicted = {side.predicted for side in sides}
    return LeftOrder(
        rank,
        tied=False,
        index=None if here is None else here.index,
        peer=longest.theirs.rank,
        peer_index=None if there is None else there.index,
        proved=proved,
        possible=frozenset.intersection(*edits) - proved,
        predicted=predicted.pop() if len(predicted) == 1 else None,
        siblings=tuple(sorted(side.theirs.rank for side in sides)),
    )


def _compare(mine: IssuedOrder, theirs: IssuedOrder) -> PartedOrders | None:
    """Where two ranks of two replicas part, by what both would do; None where they do not."""
    here, there = _shared(mine, theirs), _shared(theirs, mine)
    if not (mine.whole and theirs.whole):
        since = since_first_common(here, there)
        if since is None:
            return None
        here, there = since
    tokens = _renamed(here), _renamed(there)
    parting = find_first_parting(*tokens)
    return None if parting is None else PartedOrders(mine, theirs, parting, here, there, tokens)


def _is_passed(mine: IssuedOrder, theirs: IssuedOrder) -> bool:
    """True if a sibling that did all that a rank did has ended what that one is in."""
    count = sum(not one.done for one in mine.issued)
    here, there = _shared(mine, theirs), _shared(theirs, mine)
    ended = sum(one.done for one in there) > sum(one.done for one in here)
    return bool(count) and ended


def _shared(mine: IssuedOrder, theirs: IssuedOrder) -> list[IssuedCall]:
    """Calls from lines that both come to: what one rank alone logs or saves is no departure."""
    if not (mine.sites and theirs.sites):
        return mine.issued
    return [one for one in mine.issued if one.site in theirs.sites]


def _renamed(issued: Sequence[IssuedCall]) -> list[Token]:
    """Calls with their groups and peers numbered as the rank came to them."""
    numbers: dict[tuple[bool, int], int] = {}

    def number(one: IssuedCall) -> int:
        key = one.message, one.numbers.plain if one.message else one.place
        return numbers.setdefault(key, len(numbers))

    return [(one.numbers.lined, number(one)) for one in issued]
