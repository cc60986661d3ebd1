"""Sides of ranks whose orders part: those from which all others do."""

from __future__ import annotations

from hanglab.analyzer.graph.connected import connected
from hanglab.analyzer.graph.parted_orders import PartedOrders

Partings = dict[tuple[int, int], PartedOrders]


def stars(partings: Partings) -> list[tuple[Partings, frozenset[int]]]:
    """Partings by the ranks from which all others part, and all such ranks that part alike.

    Of ranks that part, in two sides within which nobody does, those of the smaller side; one part
    and no ranks where there are no such sides.
    """
    clusters = connected(partings, lambda pair: pair)
    return [
        star for pairs in clusters for star in _by_smaller_side({p: partings[p] for p in pairs})
    ]


def _by_smaller_side(cluster: Partings) -> list[tuple[Partings, frozenset[int]]]:
    ranks = {rank for pair in cluster for rank in pair}
    first = min(ranks)
    side = {rank for rank in ranks if (first, rank) not in cluster}
    odd, rest = sorted((side, ranks - side), key=len)
    crossing = {(min(a, b), max(a, b)) for a in odd for b in rest}
    if len(odd) == len(rest) or crossing != cluster.keys():
        return [(cluster, frozenset())]
    return [
        ({pair: one for pair, one in cluster.items() if rank in pair}, frozenset(odd))
        for rank in sorted(odd)
    ]
