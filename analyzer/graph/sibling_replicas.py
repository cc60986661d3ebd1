"""Replicas of a pipeline beside the one whose ranks miss each other's messages.

All run one program with other groups and other peers.  Where a message has no other half, the end
that left what the ranks in its place elsewhere do is the one that departed, if all others of its
own replica kept to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder, since_first_common
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.parted_orders import PartedOrders
from hanglab.analyzer.graph.replicas import Replicas
from hanglab.analyzer.graph.thresholds import AGREEING_COUNTS
from hanglab.analyzer.matching.program_order import Token, find_first_parting


class SiblingReplicas:
    """Ranks that exchange messages with each other, and those in their places elsewhere."""

    def __init__(self, orders: Mapping[int, Sequence[IssuedOrder]], replicas: Replicas) -> None:
        self._orders = {rank: mine[0] for rank, mine in orders.items() if len(mine) == 1}
        self._replicas = replicas

    def find_departed(self, ranks: Collection[int], waiting: Collection[int]) -> LeftOrder | None:
        """The one of ``ranks`` that alone left what its siblings do; None where nothing tells.

        It is one of those ``waiting`` for the other half, or a sibling of these has ended theirs.
        Replicas may differ by right, as in their microbatches: so all others of its own have to
        keep to what their siblings do; and where that is the other end alone, whole rounds before,
        with one of several siblings that agree, or with the only one.
        """
        if not self._orders.keys() >= set(ranks):
            return None
        mine = self._replicas.of(min(ranks))
        if not (mine.issuperset(ranks) and self._orders.keys() >= mine):
            return None
        siblings: dict[int, list[IssuedOrder]] = {rank: [] for rank in mine}
        for replica in self._replicas.all:
            places = {rank: self._replicas.sibling(rank, replica) for rank in mine}
            if replica is mine or not all(one in self._orders for one in places.values()):
                continue
            for rank, sibling in places.items():
                assert sibling is not None
                siblings[rank].append(self._orders[sibling])
        compared: dict[int, list[_Compared]] = {rank: [] for rank in mine}
        for rank, others in siblings.items():
            usual = frozenset[int]()
            if len(others) >= AGREEING_COUNTS:
                usual = frozenset.intersection(*(one.sites for one in others))
            for other in others:
                found = _compare(self._orders[rank], other, usual)
                if found is None:
                    return None
                compared[rank].append(found)
        parted = [rank for rank, some in compared.items() if any(one.parted for one in some)]
        if len(parted) != 1 or parted[0] not in ranks:
            return None
        (rank,) = parted
        kept = [one for other in set(ranks) - {rank} for one in compared[other]]
        told = rank in waiting or any(one.passed for one in kept)
        sides = [one.parted for one in compared[rank] if one.parted is not None]
        if not told or len(sides) < len(compared[rank]) or len({_place_of(s) for s in sides}) > 1:
            return None
        later = [one.in_later_round for one in compared[rank]]
        if len(mine) == 2 and not (all(later) or (len(later) >= AGREEING_COUNTS and any(later))):
            return None
        return _departure(rank, sides)


@dataclass(frozen=True)
class _Compared:
    """Two ranks of two replicas, by what both would do."""

    #: None where they agree as far as both go.
    parted: PartedOrders | None
    #: The first waits in something, and the other has ended more than the first.
    passed: bool
    #: They had exchanged messages alike, and ended a collective of both behind them.
    in_later_round: bool


def _place_of(parted: PartedOrders) -> tuple[int, Token | None]:
    """The place where a rank parts, and the call that its sibling has there."""
    _, theirs = parted.tokens
    at = parted.parting.theirs
    return parted.parting.mine, theirs[at] if at < len(theirs) else None


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


def _compare(mine: IssuedOrder, theirs: IssuedOrder, usual: frozenset[int]) -> _Compared | None:
    """Two orders beside each other; None where nothing tells from where on they are one.

    ``usual``: lines that all siblings of the first come to.
    """
    here, there = _shared(mine, theirs, usual), _shared(theirs, mine, usual)
    if not (mine.whole and theirs.whole):
        since = since_first_common(here, there)
        if since is None:
            return None
        here, there = since
    tokens = _renamed(here), _renamed(there)
    parting = find_first_parting(*tokens)
    agreed = here if parting is None else here[: parting.mine]
    first = next((at for at, one in enumerate(agreed) if one.message), len(agreed))
    common = mine.places & theirs.places
    waits = not all(one.done for one in mine.issued)
    return _Compared(
        None if parting is None else PartedOrders(mine, theirs, parting, here, there, tokens),
        passed=waits and sum(one.done for one in there) > sum(one.done for one in here),
        in_later_round=any(one.done and one.place in common for one in agreed[first:]),
    )


def _shared(mine: IssuedOrder, theirs: IssuedOrder, usual: frozenset[int]) -> list[IssuedCall]:
    """Calls from lines that both come to, or all siblings.

    What one rank alone logs or saves is no departure.
    """
    if not (mine.sites and theirs.sites):
        return mine.issued
    return [one for one in mine.issued if one.site in theirs.sites or one.site in usual]


def _renamed(issued: Sequence[IssuedCall]) -> list[Token]:
    """Calls with their groups and peers numbered as the rank came to them."""
    numbers: dict[tuple[bool, int], int] = {}

    def number(one: IssuedCall) -> int:
        key = one.message, one.numbers.plain if one.message else one.place
        return numbers.setdefault(key, len(numbers))

    return [(one.numbers.lined, number(one)) for one in issued]
