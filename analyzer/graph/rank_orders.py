"""Orders of operations of all ranks of a small job, as its dumps have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.graph.issued_orders import IssuedOrder, OrderReader
from hanglab.analyzer.graph.thresholds import COMPARED_ORDERS
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries


@dataclass(frozen=True)
class RankOrders:
    """Orders of the threads of each rank whose dump tells them apart."""

    by_rank: Mapping[int, Sequence[IssuedOrder]]
    #: Orders of all that each rank issued, whichever thread it was.
    whole: Mapping[int, IssuedOrder]


def read_rank_orders(
    merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup, *, messages: bool
) -> RankOrders:
    """Orders of collectives, or with ``messages`` of sends and receives as well."""
    orders: dict[int, list[IssuedOrder]] = {}
    ranks = sorted(merged.ranks) if len(merged.ranks) <= COMPARED_ORDERS else []
    lookup.prefetch(ranks)
    reader = OrderReader(messages=messages)
    for rank in ranks:
        summary, entries = merged.ranks[rank], lookup.entries(rank)
        if entries is None or (
            any(part.active_only for part in summary.parts) and not _is_unbroken(entries)
        ):
            continue
        places = {
            part.name: group_table.places[rank, number] for number, part in enumerate(summary.parts)
        }
        member_of = frozenset(
            place for place, group in enumerate(group_table.groups) if rank in group.members
        )
        orders[rank] = reader.read(summary, entries, places, member_of)
    whole = {rank: mine[0] for rank, mine in orders.items() if len(mine) == 1}
    told = [r for r in orders if merged.ranks[r].thread]
    if not told or any(len(orders[rank]) > 1 for rank in told):
        # Of others several threads may be in one order, whose turns prove nothing.
        orders = {rank: orders[rank] for rank in told}
    return RankOrders(orders, whole)


def _is_unbroken(entries: Entries) -> bool:
    """True if nothing was left out between a buffer's first entry and its last."""
    return bool((np.diff(entries.record_id) == 1).all())
