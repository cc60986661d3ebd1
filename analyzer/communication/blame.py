"""Follows waits to where they end: ranks that wait for nobody, rings, stalled operations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hanglab.analyzer.communication.merging import Merged
from hanglab.analyzer.communication.waits import Waiting, Waits


@dataclass
class End:
    """A rank at which waits end, and the operations in which others wait for it."""

    rank: int
    awaited: list[Waiting]
    #: "outside", "stopped" or "unknown"
    kind: str
    #: It may be in an operation that its dump does not show.
    hidden: bool = False


@dataclass
class Ring:
    """Ranks that wait for each other, each with the operation in which it does."""

    places: dict[int, Waiting]
    certain: bool


@dataclass
class Blame:
    ends: list[End] = field(default_factory=list)
    rings: list[Ring] = field(default_factory=list)
    stalled: list[Waiting] = field(default_factory=list)
    #: Ranks without evidence of which it is not known whether they hold others up.
    open: list[int] = field(default_factory=list)


def find_blame(merged: Merged, waits: Waits) -> Blame:
    blame = Blame()
    awaited: dict[int, list[Waiting]] = {}
    for waiting in waits.operations.values():
        for rank in waiting.blockers:
            if any(other != rank and other not in waits.stopped for other in waiting.waiters):
                awaited.setdefault(rank, []).append(waiting)
    for rank in sorted(awaited):
        end = _end_of(rank, awaited[rank], merged, waits)
        if end is not None:
            blame.ends.append(end)
    firsts = {
        id(waiting): None
        for rank in waits.by_rank
        if rank not in waits.stopped
        for waiting in waits.first(rank)
    }
    blame.stalled = [
        w for w in waits.operations.values() if w.stalled and id(w) in firsts
    ]
    held = {
        rank
        for waiting in waits.operations.values()
        if id(waiting) in firsts and waiting.open
        for rank in waiting.unknown
    }
    blame.ends = [end for end in blame.ends if end.kind != "unknown" or end.rank in held]
    blame.open = sorted(held)
    ends = {end.rank for end in blame.ends} | waits.stopped
    blame.rings = _rings(waits, ends, set(merged.ranks))
    return blame


def _end_of(rank: int, awaited: list[Waiting], merged: Merged, waits: Waits) -> End | None:
    summary = merged.ranks.get(rank)
    if summary is None or not summary.tells:
        return End(rank, awaited, "unknown")
    if rank in waits.stopped:
        return End(rank, awaited, "stopped")
    if rank in waits.by_rank:
        return None
    strict = [waiting for waiting in awaited if rank in waiting.absent]
    if not strict:
        return End(rank, awaited, "unknown")
    if not summary.gloo and any(done < queued for queued, done in summary.untied.values()):
        # Its status tells of an unfinished operation that no entry shows.
        return End(rank, strict, "unknown")
    hidden = any(part.hidden for part in summary.parts)
    return End(rank, strict, "outside", hidden)


def reaching(waits: Waits, goals: Iterable[int]) -> set[int]:
    """Ranks that wait, directly or not, for one of ``goals``."""
    held_by: dict[int, list[Waiting]] = {}
    for waiting in waits.operations.values():
        for rank in waiting.blockers:
            held_by.setdefault(rank, []).append(waiting)
    found: set[int] = set()
    todo = list(goals)
    seen = set(todo)
    visited: set[int] = set()
    while todo:
        for waiting in held_by.get(todo.pop(), ()):
            if id(waiting) in visited:
                continue
            visited.add(id(waiting))
            for rank in waiting.waiters:
                found.add(rank)
                if rank not in seen:
                    seen.add(rank)
                    todo.append(rank)
    return found


def _rings(waits: Waits, ends: set[int], known: set[int]) -> list[Ring]:
    """Closed rings: nobody in them can be freed from outside of them."""
    freed = set(ends)
    for waiting in waits.operations.values():
        # Whoever is in an operation that is explained otherwise waits for no ring.
        if waiting.explained or waiting.stalled or (waiting.seq is None and waiting.peer is None):
            freed.update(waiting.waiters)
        freed.update(rank for rank in waiting.blockers if rank not in waits.by_rank)
    left = set(waits.by_rank) - freed - reaching(waits, freed)
    edges: dict[int, set[int]] = {}
    for rank in left:
        edges[rank] = {
            other
            for _, waiting in waits.by_rank[rank]
            for other in waiting.blockers
            if other != rank and other in left
        }
    rings = []
    for component in _bottom_components(edges):
        if len(component) < 2:
            continue
        places = {}
        for rank in sorted(component):
            places[rank] = next(
                waiting
                for _, waiting in waits.by_rank[rank]
                if any(other in component and other != rank for other in waiting.blockers)
            )
        rings.append(Ring(places, all(waiting.certain for waiting in places.values())))
    return rings


def _bottom_components(edges: dict[int, set[int]]) -> list[set[int]]:
    """Strongly connected components that no edge leaves (Tarjan's algorithm, iterative)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for start in sorted(edges):
        if start in number:
            continue
        work = [(start, iter(sorted(edges[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in number:
                    number[target] = low[target] = len(number)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == number[node]:
                    component = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.add(member)
                        if member == node:
                            break
                    if all(edges[member] <= component for member in component):
                        found.append(component)
    return found
