"""Items that have ranks in common, directly or not, such as the messages of one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_T = TypeVar("_T")


def connected(items: Iterable[_T], ends: Callable[[_T], Iterable[int]]) -> list[list[_T]]:
    """Items by what their ``ends`` connect, all in the order in which they came."""
    parents: dict[int, int] = {}

    def first(rank: int) -> int:
        while parents.setdefault(rank, rank) != rank:
            parents[rank] = rank = parents[parents[rank]]
        return rank

    places: list[tuple[_T, int]] = []
    for item in items:
        own, *others = ends(item)
        for other in others:
            parents[first(other)] = first(own)
        places.append((item, own))
    found: dict[int, list[_T]] = {}
    for item, rank in places:
        found.setdefault(first(rank), []).append(item)
    return list(found.values())
