"""Receives from any source: who alone could still send, and knots, in which nobody can.

Such a receive is an OR edge: any one of the group may serve it, so its rank waits for certain
only for whom no other way leads past.  Whatever can go on is released until nothing changes; a
receive that nobody left could serve is part of a knot (Hilbrich et al., ICS'09 and SC'13).
"""

from __future__ import annotations

from collections.abc import Collection

from hanglab.analyzer.graph.thresholds import RELEASED_RANKS
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.merging import MergedSummaries


def narrow_sources(merged: MergedSummaries, waits: OpenOperations) -> None:
    """Leave in ``absent`` of each receive from any source only those that it waits for for sure.

    All who could be meant where it is part of a knot, nobody where several could serve it.
    """
    sources = {
        key: tuple(waiting.absent)
        for key, waiting in waits.operations.items()
        if waiting.any_source and waiting.absent
    }
    if not sources:
        return
    release = _Release(waits, sources)
    for key, candidates in sources.items():
        waiting = waits.operations[key]
        if len(waits.by_rank) > RELEASED_RANKS:
            waiting.absent = []
            continue
        (rank,) = waiting.waiters
        free = release.released({rank})
        serving = [one for one in candidates if one in free]
        if not serving:
            continue
        needed = [
            root
            for root in sorted(free - waits.by_rank.keys())
            if release.released({rank, root}).isdisjoint(candidates)
        ]
        known = [one for one in needed if one in merged.ranks and merged.ranks[one].informative]
        waiting.absent = [one for one in known if one in candidates] or (known and serving)
        waiting.unknown = [one for one in needed if one not in known]


class _Release:
    def __init__(
        self, waits: OpenOperations, sources: dict[tuple[int, ...], tuple[int, ...]]
    ) -> None:
        #: For each rank that waits, for each operation that holds it up: the ranks for which it
        #: waits, and whether one of them is enough; None where it waits for nobody.
        self._held: dict[int, list[tuple[tuple[int, ...], bool] | None]] = {}
        everybody: set[int] = set()
        for rank in waits.by_rank:
            held = self._held[rank] = []
            for waiting in waits.first(rank):
                if waiting.key in sources:
                    held.append((sources[waiting.key], True))
                elif waiting.explained or waiting.stalled or rank in waits.stopped:
                    held.append(None)
                else:
                    held.append((tuple(waiting.blockers(rank)), False))
        for held in self._held.values():
            everybody.update(rank for one in held if one is not None for rank in one[0])
        self._free = everybody - self._held.keys()

    def released(self, frozen: Collection[int]) -> set[int]:
        """Ranks that go on, or may, while those of ``frozen`` never do."""
        found = self._free.difference(frozen)
        waiting = self._held.keys() - frozen
        grown = True
        while grown:
            going = {rank for rank in waiting if self._goes_on(rank, found)}
            grown = bool(going)
            found |= going
            waiting = waiting - going
        return found

    def _goes_on(self, rank: int, found: Collection[int]) -> bool:
        return all(
            one is not None
            and (any(other in found for other in one[0]) if one[1]
                 else all(other in found for other in one[0]))
            for one in self._held[rank]
        )  # fmt: skip
