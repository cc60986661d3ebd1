"""Follows waits to where they end: ranks that wait for nobody, rings, stalled operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hanglab.analyzer.graph.closed_waits import (
    Hold,
    Holds,
    closed_groups,
    shortest_cycle,
    waits_without,
    within,
)
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import RankSummary


@dataclass
class WaitEnd:
    """A rank at which waits end, and the operations in which others wait for it."""

    rank: int
    awaited: list[OpenOperation]
    #: "outside", "stopped" or "unknown"
    kind: str
    #: It may be in an operation that its dump does not show.
    hidden: bool = False
    #: It has something open, which does not keep it away.
    elsewhere: bool = False
    #: Its own rounds alone tell that it is to do next what others wait for.
    by_rounds: bool = False


@dataclass
class WaitCycle:
    """Ranks that wait for each other, each for the next, with the operation in which it does."""

    places: dict[int, OpenOperation]
    certain: bool
    #: Any one of them, had it gone on, would have freed all.
    keys: tuple[int, ...]
    #: No ring: some of them may take from any of the others, none of whom can send.
    knot: bool = False


@dataclass
class WaitRoots:
    ends: list[WaitEnd] = field(default_factory=list)
    cycles: list[WaitCycle] = field(default_factory=list)
    stalled: list[OpenOperation] = field(default_factory=list)
    #: Ranks without evidence of which it is not known whether they hold others up.
    open: list[int] = field(default_factory=list)


def find_roots(merged: MergedSummaries, waits: OpenOperations) -> WaitRoots:
    roots = WaitRoots()
    awaited: dict[int, list[OpenOperation]] = {}
    for waiting in waits.operations.values():
        for rank in {*waiting.absent, *waiting.behind, *waiting.unknown}:
            if any(other not in waits.stopped for other in waiting.held_up_by(rank)):
                awaited.setdefault(rank, []).append(waiting)
    for rank in sorted(awaited):
        end = _end_of(rank, awaited[rank], merged, waits)
        if end is not None:
            roots.ends.append(end)
    firsts = {
        id(waiting)
        for rank in waits.by_rank
        if rank not in waits.stopped and not merged.ranks[rank].history_truncated
        for waiting in waits.first(rank)
    }
    roots.stalled = [w for w in waits.operations.values() if w.stalled and id(w) in firsts]
    held = {
        rank
        for waiting in waits.operations.values()
        if id(waiting) in firsts and waiting.open
        for rank in waiting.unknown
    }
    roots.ends = [end for end in roots.ends if end.kind != "unknown" or end.rank in held]
    roots.open = sorted(held)
    needless = _without_need(merged, waits, roots.ends)
    roots.ends = [end for end in roots.ends if end.rank not in needless]
    ends = {end.rank for end in roots.ends} | waits.stopped
    roots.cycles = _wait_cycles(merged, waits, ends, needless)
    return roots


def _end_of(
    rank: int, awaited: list[OpenOperation], merged: MergedSummaries, waits: OpenOperations
) -> WaitEnd | None:
    summary = merged.ranks.get(rank)
    if summary is None or not summary.informative:
        return WaitEnd(rank, awaited, "unknown")
    if rank in waits.stopped:
        return WaitEnd(rank, awaited, "stopped")
    if rank in waits.by_rank:
        elsewhere = [waiting for waiting in awaited if rank in waiting.elsewhere]
        return WaitEnd(rank, elsewhere, "outside", elsewhere=True) if elsewhere else None
    strict = [waiting for waiting in awaited if rank in waiting.absent]
    if not strict:
        return WaitEnd(rank, awaited, "unknown")
    if may_hide(summary):
        return WaitEnd(rank, strict, "unknown")
    hidden = any(part.hidden for part in summary.parts)
    return WaitEnd(rank, strict, "outside", hidden)


def may_hide(summary: RankSummary) -> bool:
    """True if a rank may have unfinished operations that its dump does not show."""
    if end_is_lost(summary):
        return True
    # Its status tells of an unfinished operation that no entry shows.
    # Sends and receives have numbers of their own, so the higher one may be the older.
    return not summary.gloo and any(
        done != queued for queued, done in summary.unassigned_status.values()
    )


def end_is_lost(summary: RankSummary) -> bool:
    """True if a rank's file breaks off, and nothing tells what it did behind that."""
    return summary.truncated and not _status_tells(summary)


def _status_tells(summary: RankSummary) -> bool:
    """True if by its statuses nothing is unfinished but what a file that breaks off still shows."""
    shown = {(pending.part, pending.seq) for pending in summary.pending}
    return (
        summary.has_status
        and not summary.gloo
        and all(done == queued for queued, done in summary.unassigned_status.values())
        and not any(part.p2p for part in summary.parts)
        and all(
            (number, seq) in shown
            for number, part in enumerate(summary.parts)
            for seq in part.unfinished
        )
    )


def reaching(waits: OpenOperations, goals: Iterable[int]) -> set[int]:
    """Ranks that wait, directly or not, for one of ``goals``."""
    holds: dict[int, list[OpenOperation]] = {}
    for waiting in waits.operations.values():
        if not waiting.explained:
            for rank in {*waiting.absent, *waiting.behind, *waiting.unknown}:
                holds.setdefault(rank, []).append(waiting)
    found: set[int] = set()
    todo = list(goals)
    seen = set(todo)
    # A rank that has not entered holds all waiters up; one that is held up by
    # something older all but itself, so two such ranks together do.
    visits: Counter[tuple[int, bool]] = Counter()
    while todo:
        blocker = todo.pop()
        for waiting in holds.get(blocker, ()):
            mark = id(waiting), blocker in waiting.not_entered
            visits[mark] += 1
            if visits[mark] > (1 if mark[1] else 2):
                continue
            for rank in waiting.held_up_by(blocker):
                found.add(rank)
                if rank not in seen:
                    seen.add(rank)
                    todo.append(rank)
    return found


def _without_need(
    merged: MergedSummaries, waits: OpenOperations, ends: Iterable[WaitEnd]
) -> set[int]:
    """Ranks that nobody waits for but who is in a ring that stands without them.

    Whoever waits for several waits for each of them: a ring of such waits is not freed by one who
    comes to an operation of it from outside.  Where all have issued an operation, those hold it up
    who have it behind what they wait in.
    """
    outside = {end.rank for end in ends if end.kind == "outside" and not end.elsewhere}
    if not outside:
        return set()
    absent = {
        id(waiting): Hold(waiting.not_entered or frozenset(waiting.behind))
        for waiting in waits.operations.values()
    }
    holds = {}
    for rank in waits.by_rank.keys() - (waits.stopped | waits.unsettled | waits.unordered):
        first = waits.first(rank)
        if not (merged.ranks[rank].history_truncated or any(map(_is_doubtful, first))):
            holds[rank] = [absent[id(waiting)] for waiting in first]
    rings = set().union(*closed_groups(within(holds, holds)))
    unfreed = {
        id(waiting)
        for waiting in waits.operations.values()
        if waiting.explained or rings.issuperset(waiting.waiters)
    }
    return {
        end.rank for end in ends if end.rank in outside and unfreed.issuperset(map(id, end.awaited))
    }


def _is_doubtful(waiting: OpenOperation) -> bool:
    explained = waiting.explained or waiting.stalled or waiting.open
    return explained or waiting.any_source or not waiting.certain


def _wait_cycles(
    merged: MergedSummaries, waits: OpenOperations, ends: set[int], needless: set[int]
) -> list[WaitCycle]:
    """Closed rings: nobody in them can be freed from outside of them.

    Ranks ``needless`` hold up rings alone that stand without them.
    """
    # What a ring of entries no longer shows may be what a rank is really held up by.
    freed = set(ends) | {rank for rank in waits.by_rank if merged.ranks[rank].history_truncated}
    for waiting in waits.operations.values():
        # Whoever is in an operation that is explained otherwise waits for no ring, nor does
        # anybody provably who waits for ranks that may have come.
        anybody = waiting.any_source and not waiting.absent
        if waiting.explained or waiting.stalled or waiting.open or anybody:
            freed.update(waiting.leaders)
        freed.update(r for r in waiting.absent if r not in waits.by_rank and r not in needless)
    left = set(waits.by_rank) - freed - reaching(waits, freed)
    kept = {
        (id(waiting), leads): Hold(frozenset(waiting.holding(leads)))
        for waiting in waits.operations.values()
        for leads in (False, True)
    }
    holds = within(
        {rank: [kept[id(w), rank in w.leaders] for w in waits.first(rank)] for rank in left},
        left,
    )
    return [_wait_cycle(within(holds, group), waits) for group in closed_groups(holds)]


def _wait_cycle(holds: Holds, waits: OpenOperations) -> WaitCycle:
    if any(waiting.any_source for rank in holds for waiting in waits.first(rank)):
        # Whoever any of them could free has to be in it.
        knot = {rank: waits.first(rank)[0] for rank in sorted(holds)}
        return WaitCycle(knot, all(w.certain for w in knot.values()), (), knot=True)
    cycle = shortest_cycle(_settled(holds, waits.unsettled) or holds)
    keys = [rank for rank in cycle if not waits_without(holds, rank)]
    if keys and keys[0] != cycle[0]:
        at = cycle.index(keys[0])
        cycle = cycle[at:] + cycle[:at]
    places = {}
    for rank, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        places[rank] = next(
            waiting for waiting in waits.first(rank) if following in waiting.blockers(rank)
        )
    certain = all(waiting.certain for waiting in places.values())
    return WaitCycle(places, certain, tuple(keys))


def _settled(holds: Holds, unsettled: set[int]) -> Holds:
    """The part of a ring of whose ranks all are known to wait in what they have open, if any."""
    if unsettled.isdisjoint(holds):
        return holds
    known = within(holds, holds.keys() - unsettled)
    groups = closed_groups(known)
    return within(known, groups[0]) if groups else {}
