"""Ranks of one kind, by what they send and receive: workers of one server, stages of one place.

They call alike, with the same other ends.  Where one of a ring of messages went on otherwise than
all others of its kind that had done the same until then, it left the order; and what others of its
kind have done as well breaks none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.graph.thresholds import KINDRED_MESSAGES, KINDRED_RANKS, KINDRED_SINCE
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.recorder.case.operations import op_of


@dataclass(frozen=True)
class Kindred:
    """Account of a rank by others of its kind, up to the call that it waits in."""

    #: As many had called the same, and all of them went on otherwise; 0 if it left no order.
    outvoted_by: int = 0
    #: Calls of its, from the first on, that others have made alike.
    shared: int = 0


class KindredOrders:
    """Compares whole orders of calls, messages among them, that each rank made from one thread."""

    def __init__(self, orders: Mapping[int, IssuedOrder], lookup: CallLookup) -> None:
        self._orders, self._lookup = orders, lookup

    @cached_property
    def _calls(self) -> dict[int, tuple[Hashable, ...]]:
        return {
            rank: calls
            for rank, order in self._orders.items()
            if order.whole and (calls := self._calls_of(rank, order)) is not None
        }

    def _calls_of(self, rank: int, order: IssuedOrder) -> tuple[Hashable, ...] | None:
        entries = self._lookup.entries(rank)
        if entries is None or not all(one.known for one in order.issued):
            return None
        found: list[Hashable] = []
        for one in order.issued:
            operation = entries.operation_at(one.index)
            half = op_of(operation.op)
            end = (operation.dst if half.sends else operation.src) if one.message else None
            name = half.half if one.message else operation.op
            found.append((entries.group_at(one.index), name, end, one.site))
        return tuple(found)

    def tell(self, rank: int, index: int) -> Kindred:
        """Their account of a rank that waits in the entry of that index."""
        mine, order = self._calls.get(rank), self._orders.get(rank)
        if mine is None or order is None:
            return Kindred()
        at = next((n for n, one in enumerate(order.issued) if one.index == index), None)
        if at is None:
            return Kindred()
        alike = {
            other: _common(mine, theirs) for other, theirs in self._calls.items() if other != rank
        }
        most = sorted(alike.values(), reverse=True)
        shared = most[KINDRED_RANKS - 1] if len(most) >= KINDRED_RANKS else 0
        until = max(most, default=0)
        messages = sum(one.message for one in order.issued[:until])
        if not until <= at <= until + KINDRED_SINCE or messages < KINDRED_MESSAGES:
            return Kindred(shared=shared)
        parting = order.issued[until]
        able = [
            self._calls[other]
            for other, common in alike.items()
            if common == until < len(self._calls[other]) and self._may_call(other, parting)
        ]
        alone = len(able) >= KINDRED_RANKS and len({calls[until] for calls in able}) == 1
        alone = alone and not _come_variously(mine, able, until)
        return Kindred(len(able) if alone else 0, shared)

    def _may_call(self, rank: int, one: IssuedCall) -> bool:
        """True if a rank has a part in what another called."""
        return one.message or one.place in self._orders[rank].places


def _come_variously(
    mine: Sequence[Hashable], others: Sequence[Sequence[Hashable]], at: int
) -> bool:
    """True if others come to a rank's call as well, each after rounds of its own number."""
    came = {calls.index(mine[at], at) for calls in others if mine[at] in calls[at:]}
    return len(came) > 1


def _common(mine: Sequence[Hashable], theirs: Sequence[Hashable]) -> int:
    """Number of calls from the first on that are the same."""
    pairs = zip(mine, theirs, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(theirs)))
