"""Stretches of time laid out so that those of one track lie inside each other, or apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

#: What a track says of a stretch: text, whole numbers, truth.
Notes = dict[str, str | int | bool]


class Slice(NamedTuple):
    """One stretch, in nanoseconds; ``flow`` links it with those of the same number."""

    begin_ns: int
    end_ns: int
    name: str
    notes: Notes | None = None
    flow: int | None = None


@dataclass
class Lane:
    """Stretches that nest, in the order in which they begin; of two, the longer one first."""

    slices: list[Slice] = field(default_factory=list)
    #: Ends of those that are open where the latest begins, innermost last.
    ends: list[int] = field(default_factory=list)

    def takes(self, one: Slice) -> bool:
        while self.ends and self.ends[-1] <= one.begin_ns:
            self.ends.pop()
        return not self.ends or one.end_ns <= self.ends[-1]

    def add(self, one: Slice) -> None:
        self.slices.append(one)
        self.ends.append(one.end_ns)


def lanes_of(slices: Iterable[Slice], *, nest: bool) -> list[Lane]:
    """Slices on as few lanes as they need; with ``nest`` one may lie inside another.

    Operations that are under way together are beside each other, calls within calls below.
    """
    lanes: list[Lane] = []
    for one in sorted(slices, key=lambda one: (one.begin_ns, -one.end_ns)):
        for lane in lanes:
            if lane.takes(one) and (nest or not lane.ends):
                break
        else:
            lane = Lane()
            lanes.append(lane)
        lane.add(one)
    return lanes


def begins_and_ends(lane: Lane) -> Iterator[tuple[int, Slice | None]]:
    """Times in order, each with the slice that begins then, or None where the innermost ends."""
    ends: list[int] = []
    for one in lane.slices:
        while ends and ends[-1] <= one.begin_ns:
            yield ends.pop(), None
        yield one.begin_ns, one
        ends.append(one.end_ns)
    while ends:
        yield ends.pop(), None
