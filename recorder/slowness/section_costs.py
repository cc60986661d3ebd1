"""Sections compared by processor time: a wait inside of one does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from hanglab.recorder.slowness.statistics import median
from hanglab.recorder.slowness.thresholds import (
    BEYOND_ALL_FACTOR,
    COLD_CACHE_FACTOR,
    FEWEST_FOR_MEAN,
    FLOOR_MS,
)


class TypicalCost(NamedTuple):
    """Processor time of a section's entry in nanoseconds: the median, and the quickest fifth's.

    Neighbours on a crowded machine stretch some entries; the quickest fifth shows what the
    work itself takes.
    """

    median_ns: float
    quick_ns: float


class SectionCost(NamedTuple):
    """Processor time of one section on one rank."""

    entries: int
    cpu_ns: int
    #: None where too few entries are known.
    typical: TypicalCost | None


#: Section and its kind -> rank -> cost.
Costs: TypeAlias = Mapping[tuple[str, str], Mapping[int, SectionCost]]


def heaviest_section(costs: Costs, rank: int, least_ns: float) -> str | None:
    """The section in which the rank used most processor time beyond its peers.

    None where that is less than ``least_ns`` in all.
    """
    best: tuple[float, str] = (least_ns, "")
    for section, own, peers in _shared(costs, rank):
        usual = median(peer.cpu_ns / peer.entries for peer in peers)
        best = max(best, (own.cpu_ns - usual * own.entries, section))
    return best[1] or None


def longer(costs: Costs, rank: int) -> bool:
    """True if a section takes the rank more processor time, typical and quickest entries alike."""
    return any(
        all(
            own[i] >= COLD_CACHE_FACTOR * median(peer[i] for peer in peers)
            and own[i] >= BEYOND_ALL_FACTOR * max(peer[i] for peer in peers)
            and own[i] >= median(peer[i] for peer in peers) + FLOOR_MS * 1e6
            for i in (0, 1)
        )
        for own, peers in _typical(costs, rank)
    )


def slower_throughout(costs: Costs, rank: int, factor: float) -> bool:
    """True if each of its sections, two at least, takes it ``factor`` times the peers' time.

    More work has its place; what makes everything slower, down to the optimizer's step, is
    the processor: a slower one, or one that is shared with something unseen.
    """
    compared = list(_typical(costs, rank))
    return len(compared) > 1 and all(
        own[i] >= factor * median(peer[i] for peer in peers)
        for own, peers in compared
        for i in (0, 1)
    )


def _typical(costs: Costs, rank: int) -> Iterator[tuple[TypicalCost, list[TypicalCost]]]:
    """Costs that are typical of the rank and of its peers, of sections that were entered often."""
    for _, own, peers in _shared(costs, rank):
        if min(own.entries, *(peer.entries for peer in peers)) < FEWEST_FOR_MEAN:
            continue
        known = [peer.typical for peer in peers if peer.typical is not None]
        if own.typical is not None and known:
            yield own.typical, known


def _shared(costs: Costs, rank: int) -> Iterator[tuple[str, SectionCost, list[SectionCost]]]:
    """The rank's sections that peers have, too."""
    for (section, _), by_rank in costs.items():
        peers = [cost for peer, cost in by_rank.items() if peer != rank]
        if rank in by_rank and peers:
            yield section, by_rank[rank], peers
