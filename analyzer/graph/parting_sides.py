"""Sides of ranks whose orders part: those from which all others do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from hanglab.analyzer.graph.connected import connected
from hanglab.analyzer.graph.parted_orders import PartedOrders

Partings = dict[tuple[int, int], PartedOrders]


@dataclass(frozen=True)
class Star:
    """Partings of one rank with those who keep the order, or, where nobody is told, of all."""

    partings: Partings
    #: All ranks that left the order, that one with them.
    departed: frozenset[int] = frozenset()
    #: They left it alike.
    alike: bool = False


def stars(partings: Partings) -> list[Star]:
    """Partings by the ranks that left the order of all others.

    Of ranks that part, in two sides within which nobody does, those of the smaller side.  Or two of
    which one is in each parting, where no other two are.
    """
    clusters = connected(partings, lambda pair: pair)
    return [star for pairs in clusters for star in _stars_of({p: partings[p] for p in pairs})]


def _stars_of(cluster: Partings) -> list[Star]:
    odd = _smaller_side(cluster)
    alike = bool(odd)
    if not alike:
        ranks = sorted({rank for pair in cluster for rank in pair})
        covers = [two for two in combinations(ranks, 2) if all({*two} & {*p} for p in cluster)]
        odd = frozenset(covers[0] if len(covers) == 1 and len(ranks) > 2 else ())
    if not odd:
        return [Star(cluster)]
    return [
        Star({p: one for p, one in cluster.items() if odd.intersection(p) == {rank}}, odd, alike)
        for rank in sorted(odd)
    ]


def _smaller_side(cluster: Partings) -> frozenset[int]:
    """Ranks within which nobody parts, while all part from all others; none if not the fewer."""
    ranks = {rank for pair in cluster for rank in pair}
    first = min(ranks)
    side = {rank for rank in ranks if (first, rank) not in cluster}
    odd, rest = sorted((side, ranks - side), key=len)
    crossing = {(min(a, b), max(a, b)) for a in odd for b in rest}
    return frozenset(odd if len(odd) < len(rest) and crossing == cluster.keys() else ())
