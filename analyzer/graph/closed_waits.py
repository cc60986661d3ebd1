"""Ranks that wait for each other, found over that in which they wait.

Half of a job may wait for the other half: who waits for whom are more pairs than fit into memory
for a job of 100,000 ranks.  So a :class:`Hold` stands between those who wait in one operation and
those who keep them there, and all that is done here takes as long as ranks and holds have ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hanglab.analyzer.graph.thresholds import CYCLE_STARTS


@dataclass(frozen=True, eq=False)
class Hold:
    """Ranks that keep others in an operation; a waiter among them does not keep itself."""

    ranks: frozenset[int]


#: Where each rank is kept.
Holds = Mapping[int, Sequence[Hold]]


def within(holds: Holds, ranks: Collection[int]) -> dict[int, list[Hold]]:
    """Waits among ``ranks`` alone."""
    chosen = frozenset(ranks)
    narrowed: dict[Hold, Hold] = {}
    kept: dict[int, list[Hold]] = {}
    for rank in sorted(chosen):
        kept[rank] = []
        for hold in holds[rank]:
            if hold not in narrowed:
                narrowed[hold] = Hold(hold.ranks & chosen)
            part = narrowed[hold]
            if len(part.ranks) > (rank in part.ranks):
                kept[rank].append(part)
    return kept


def closed_groups(holds: Holds) -> list[set[int]]:
    """Groups of two ranks or more that all wait for each other and for nobody else.

    Strongly connected components that nothing leaves (Tarjan's algorithm, iterative).
    """
    number: dict[int | Hold, int] = {}
    low: dict[int | Hold, int] = {}
    stack: list[int | Hold] = []
    on_stack: set[int | Hold] = set()
    found: list[set[int]] = []

    def enter(node: int | Hold) -> tuple[int | Hold, Iterator[int | Hold]]:
        number[node] = low[node] = len(number)
        stack.append(node)
        on_stack.add(node)
        return node, iter(sorted(node.ranks) if isinstance(node, Hold) else holds[node])

    for start in sorted(holds):
        work = [] if start in number else [enter(start)]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in number:
                    work.append(enter(target))
                    break
                if target in on_stack:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == number[node]:
                    component = {node}
                    while (member := stack.pop()) != node:
                        component.add(member)
                    on_stack -= component
                    ranks = {member for member in component if not isinstance(member, Hold)}
                    if len(ranks) > 1 and _is_closed(component, ranks, holds):
                        found.append(ranks)
    return found


def _is_closed(component: set[int | Hold], ranks: set[int], holds: Holds) -> bool:
    return all(
        node.ranks <= ranks if isinstance(node, Hold) else component.issuperset(holds[node])
        for node in component
    )


def shortest_cycle(holds: Holds) -> list[int]:
    """The fewest ranks of a closed group of which each waits for the next, the last for the first.

    Looked for from some of them.
    """
    best: list[int] = []
    for start in sorted(holds)[:CYCLE_STARTS]:
        came: dict[int, int] = {}
        seen: dict[Hold, int] = {}
        level = [start]
        while level and start not in came:
            following = []
            for node in level:
                for target in sorted(_targets(node, holds, seen)):
                    if target not in came:
                        came[target] = node
                        following.append(target)
            level = following
        path = [start]
        while (before := came[path[-1]]) != start:
            path.append(before)
        if not best or len(path) < len(best):
            best = path[::-1]
        if len(best) == 2:
            break
    return best


def _targets(rank: int, holds: Holds, seen: dict[Hold, int]) -> set[int]:
    """Ranks that keep ``rank``, but for those that were met at a hold before; notes who met it."""
    found: set[int] = set()
    for hold in holds[rank]:
        first = seen.setdefault(hold, rank)
        if first == rank:
            found |= hold.ranks
        elif first in hold.ranks:
            found.add(first)  # who does not keep itself keeps others
    found.discard(rank)
    return found


def waits_without(holds: Holds, gone: int) -> bool:
    """True if ranks of a closed group still wait once ``gone`` is taken to go on."""
    kept: defaultdict[Hold, set[int]] = defaultdict(set)
    keeping: defaultdict[int, set[Hold]] = defaultdict(set)
    for rank, mine in holds.items():
        for hold in mine:
            kept[hold].add(rank)
    for hold in kept:
        for keeper in hold.ranks:
            keeping[keeper].add(hold)
    left = {hold: set(hold.ranks) for hold in kept}
    places = {rank: len(mine) for rank, mine in holds.items()}
    free, went = [gone], {gone}
    while free:
        rank = free.pop()
        for hold in keeping[rank]:
            left[hold].discard(rank)
            if len(left[hold]) > 1:
                continue
            # The last one is not kept by itself, and has been let go when all others are.
            for user in left[hold] & kept[hold] if left[hold] else kept[hold] - {rank}:
                places[user] -= 1
                if not places[user] and user not in went:
                    went.add(user)
                    free.append(user)
    return len(went) < len(holds)
