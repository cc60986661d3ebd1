"""Ranks that exchange messages with each other, and those in their places elsewhere.

Each tensor-parallel rank, and each data-parallel replica, has a pipeline of its own, and all of
them run one program with other groups and other peers.  The stages of one pipeline do not.
"""

from __future__ import annotations

from functools import cached_property

from hanglab.analyzer.graph.connected import connected
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries


class Replicas:
    """Ranks by the messages that their dumps show; no ranks where there are none."""

    def __init__(self, merged: MergedSummaries, group_table: GroupTable) -> None:
        self._merged = merged
        self._group_table = group_table
        self._siblings: dict[tuple[int, frozenset[int]], int | None] = {}

    @cached_property
    def all(self) -> list[frozenset[int]]:
        """Ranks that exchange messages with each other, directly or not."""
        places, pairs = self._group_table.places, []
        for rank, summary in self._merged.ranks.items():
            for number, part in enumerate(summary.parts):
                members = self._group_table.groups[places[rank, number]].members
                ends = {end for channel in part.channels for end in (channel.src, channel.dst)}
                pairs += [(rank, members[end]) for end in ends if 0 <= end < len(members)]
        return [frozenset().union(*one) for one in connected(pairs, lambda pair: pair)]

    def of(self, rank: int) -> frozenset[int]:
        """The ranks with which one exchanges messages, with itself."""
        return self._by_rank.get(rank, frozenset({rank}))

    def sibling(self, rank: int, replica: frozenset[int]) -> int | None:
        """The rank in the place of another in a replica; None if no group, or several, tell.

        They are in a group in which each of the two replicas has that one member.
        """
        key = rank, replica
        if key not in self._siblings:
            mine = self.of(rank)
            found = {
                sibling
                for group in self._group_table.groups
                if mine.intersection(group.members) == {rank}
                for sibling in replica.intersection(group.members)
                if len(replica.intersection(group.members)) == 1
            }
            self._siblings[key] = found.pop() if len(found) == 1 else None
        return self._siblings[key]

    def run_alike(self, one: int, other: int) -> bool:
        """True if two ranks run the same part of the program, as far as messages tell."""
        if not self.all:
            return True
        pair = self.sibling(one, self.of(other)), self.sibling(other, self.of(one))
        return pair == (other, one)

    @cached_property
    def _by_rank(self) -> dict[int, frozenset[int]]:
        return {rank: replica for replica in self.all for rank in replica}
