"""The rank that left the order of all others, or alone its own, and what of it differences tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.departures import ProgramOrders, explains
from hanglab.analyzer.graph.difference_labels import label_by_departure, label_by_sides
from hanglab.analyzer.graph.kindred_orders import Kindred, KindredOrders
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.lone_steps import LoneSteps
from hanglab.analyzer.graph.message_rounds import has_known_rounds
from hanglab.analyzer.graph.order_votes import OrderVotes, Vote
from hanglab.analyzer.graph.own_orders import OwnOrders, keeps_to_rounds, may_repeat
from hanglab.analyzer.graph.rank_orders import RankOrders, read_rank_orders
from hanglab.analyzer.graph.replicas import Replicas
from hanglab.analyzer.graph.sibling_replicas import SiblingReplicas
from hanglab.analyzer.graph.usual_successors import find_unusual_successor
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Divergence
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.missing_votes import outvotes
from hanglab.analyzer.matching.program_order import Edit
from hanglab.analyzer.matching.signatures import ARGUMENT_DIFFERENCES


class DepartureFinder:
    """Looks in orders of collectives first, then in what follows what, then in own orders."""

    def __init__(
        self, merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup
    ) -> None:
        self._merged = merged
        self._group_table = group_table
        self._lookup = lookup
        self._replicas = Replicas(merged, group_table)

    def find(self, divergences: Sequence[Divergence], waits: OpenOperations) -> LeftOrder | None:
        """The rank that left the order of all others; it decides differences that are open."""
        if self._is_unnamed or not waits.by_rank or any(one.contradicted for one in divergences):
            return None
        if waits.all_issued and not divergences:
            # Who left a call out, or made one more, has somebody wait for what lacks.
            return self._own_departure(waits)
        found = self.orders.find(waits)
        if any(one.deviating for one in divergences):
            if found is not None and not found.tied:
                label_by_departure(divergences, self._with_own_edit(found), self._lookup)
            return None
        if found is None and not divergences:
            found = self._unusual_successor(waits)
        if found is None and not divergences:
            found = self._own_departure(waits)
        if found is None or any(self._came_before(one, found) for one in divergences):
            return None
        if divergences and not any(
            {found.rank, *found.others} & {*d.candidates} for d in divergences
        ):
            return None  # What others differ in holds them up, whatever order a rank came to.
        arguments = any(one.difference in ARGUMENT_DIFFERENCES for one in divergences)
        if found.tied and arguments and not (found.regrouped and self._are_alike(found)):
            return None  # That tells as much, and what it is in which they differ.
        found = self._with_own_edit(found)
        for divergence in divergences:
            if not found.tied and found.rank in divergence.candidates:
                left = {found.rank, *found.others}.intersection(divergence.candidates)
                if len(left) > 1 and not outvotes(
                    len(divergence.candidates) - len(left), len(left)
                ):
                    return None
                if not _others_agree(divergence, left):
                    return None  # More than two ways were gone, and no one rank left the common.
                divergence.deviating, divergence.candidates = tuple(sorted(left)), ()
                divergence.skipped = found.edit is Edit.LEFT_OUT
                label_by_sides(divergence)
        return found

    def _came_before(self, divergence: Divergence, found: LeftOrder) -> bool:
        """True if two others differ in what a rank called before it left the order."""
        group = divergence.group
        if found.rank not in group.members or found.rank in divergence.candidates:
            return False
        index = self._lookup.index_of(found.rank, group.name, divergence.seq)
        return index != ABSENT and (found.index is None or index < found.index)

    def _are_alike(self, found: LeftOrder) -> bool:
        """True if the two calls at which ranks part have the same arguments, their dtypes as well.

        Orders hold no dtypes.
        """
        ends = (found.rank, found.index), (found.peer, found.peer_index)
        given = [
            entries.arguments_at(index)
            for rank, index in ends
            if index is not None and (entries := self._lookup.entries(rank)) is not None
        ]
        return found.alike and len(given) == len(ends) and given[0] == given[1]

    def label_silent(self, silent: Sequence[Divergence]) -> None:
        """Let the departure of a rank tell what its differences follow from that held up nobody."""
        if self._is_unnamed or not any(one.deviating for one in silent):
            return
        found = self.orders.find(None)
        if found is not None and not found.tied:
            label_by_departure(silent, self._with_own_edit(found), self._lookup)

    def _unusual_successor(self, waits: OpenOperations) -> LeftOrder | None:
        """The rank that went on as nobody does, where that explains who waits for whom."""
        members = [group.members for group in self._group_table.groups]
        found = find_unusual_successor(self._message_orders.by_rank, members)
        if found is None or not explains(found.rank, frozenset(), waits):
            return None
        # Whoever waits for one that waits for nobody need not have left anything out.
        awaited = {rank for one in waits.first(found.rank) for rank in one.absent}
        idle = found.edit is Edit.LEFT_OUT and not awaited <= waits.by_rank.keys()
        return None if idle else found

    @property
    def _is_unnamed(self) -> bool:
        return any(group.doubtful or group.misnamed for group in self._group_table.groups)

    def keeps_own_order(self, rank: int, batch: int) -> bool:
        """True if a rank's own rounds prove that it has issued no batch of so many too often."""
        order = self._message_orders.whole.get(rank)
        return order is not None and keeps_to_rounds(order, batch)

    def may_repeat(self, rank: int, index: int, *, alone: bool = True) -> bool:
        """True if by a rank's own order the collective of that entry may be one too many."""
        order = self._message_orders.whole.get(rank)
        return order is not None and may_repeat(order, index, alone=alone)

    def lone_steps(self, shown: CallsOfRanks) -> LoneSteps | None:
        """Steps that a rank alone took; None where ranks do not agree on which groups they use."""
        if self._is_unnamed:
            return None
        return LoneSteps(lambda: self._message_orders.by_rank, shown.at)

    def find_among_siblings(
        self, ranks: Collection[int], waiting: Collection[int]
    ) -> LeftOrder | None:
        """The one of ranks that miss each other's messages that left what its siblings do."""
        return None if self._is_unnamed else self._siblings.find_departed(ranks, waiting)

    def left_own_order_at(self, rank: int) -> int | None:
        """Index of the entry at which a rank left its own rounds; None where it kept to them."""
        return self._own_orders.broken_at(rank)

    def left_own_order_alone(
        self,
        waited: Mapping[int, int],
        *,
        by_new: bool = False,
        shared: Mapping[int, int] | None = None,
    ) -> int | None:
        """The one rank of a ring that left its own rounds; see OwnOrders.broken_by_one."""
        return self._own_orders.broken_by_one(waited, by_new=by_new, shared=shared)

    def has_known_rounds(self, rank: int, index: int) -> bool:
        """True if a rank had come round before a message; within its first round come phases."""
        return has_known_rounds(self._lookup.entries(rank), index)

    def kindred(self, rank: int, index: int) -> Kindred:
        """Account of a rank by others that send and receive alike; see KindredOrders."""
        return Kindred() if self._is_unnamed else self._kindred.tell(rank, index)

    def vote(self, ring: Sequence[int]) -> Vote | None:
        """The vote of all ranks where two of a ring part; see OrderVotes."""
        if self._is_unnamed:
            return None
        return self._votes.of_ring(ring, self._group_table.expected)

    def _own_departure(self, waits: OpenOperations) -> LeftOrder | None:
        """The rank that alone left its own order; None where it waits for what is explained.

        A new phase is new to the ranks that come to it first, when the others are held up.
        """
        found = self._own_orders.find(self._group_table.expected, waits)
        if found is not None and found.messages and found.index is not None:
            if not self.has_known_rounds(found.rank, found.index):
                return None
        explained = [w for w in waits.operations.values() if w.explained]
        # The rest of a batch in which two do not agree is held up by these two.
        explained = [w for w in explained if w.mismatched] or explained
        ends = {rank for w in explained for rank in (*w.waiters, w.peer) if rank is not None}
        return None if found is None or (ends and found.rank not in ends) else found

    def _with_own_edit(self, found: LeftOrder) -> LeftOrder:
        """The departure with what the rank's own rounds tell of it, where no peer's do."""
        if found.edit is not None or found.index is None or found.tied:
            return found
        return replace(found, predicted=self._own_orders.edit_at(found.rank, found.index))

    @cached_property
    def orders(self) -> ProgramOrders:
        return ProgramOrders(self._collective_orders, self._group_table.groups, self._replicas)

    @cached_property
    def _collective_orders(self) -> RankOrders:
        return read_rank_orders(self._merged, self._group_table, self._lookup, messages=False)

    @cached_property
    def _message_orders(self) -> RankOrders:
        return read_rank_orders(self._merged, self._group_table, self._lookup, messages=True)

    @cached_property
    def _own_orders(self) -> OwnOrders:
        return OwnOrders(self._message_orders.by_rank)

    @cached_property
    def _votes(self) -> OrderVotes:
        return OrderVotes(self._collective_orders.whole, self._group_table.groups)

    @cached_property
    def _kindred(self) -> KindredOrders:
        return KindredOrders(self._message_orders.whole, self._lookup)

    @cached_property
    def _siblings(self) -> SiblingReplicas:
        orders = self._message_orders
        # Turns of several threads, where a dump does not tell them apart, part several ranks.
        one_each = {rank: (order,) for rank, order in orders.whole.items()}
        return SiblingReplicas({**one_each, **orders.by_rank}, self._replicas)


def _others_agree(divergence: Divergence, left: Collection[int]) -> bool:
    """True if all ranks of a difference but those that left the order call the same operation."""
    others = [call for rank, call in divergence.calls.items() if rank not in left]
    return len({call.op for call in others}) < 2
