"""Rings of ranks that wait for each other, and what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.departure_finder import DepartureFinder
from hanglab.analyzer.graph.entry_order import (
    alone_in_order,
    are_own_orders,
    have_common_order,
    have_crossed,
    kept_order_alone,
    who_changed_order,
)
from hanglab.analyzer.graph.message_counts import find_miscount
from hanglab.analyzer.graph.message_rounds import has_known_rounds
from hanglab.analyzer.graph.mismatched_halves import find_mismatched_halves, find_untaken_send
from hanglab.analyzer.graph.new_channels import find_message_alone_in_group, find_new_channel
from hanglab.analyzer.graph.order_votes import Vote
from hanglab.analyzer.graph.owed_operations import (
    Owed,
    OwedOrder,
    host_that_stopped,
    left_out_by_one,
    owed_operations,
    was_passed_before,
)
from hanglab.analyzer.graph.p2p_counts import posted_by_counts
from hanglab.analyzer.graph.ring_doubts import (
    any_come_unseen,
    any_left_out,
    any_of_a_batch,
    is_level,
    is_of_one_rank,
    is_of_queues_alone,
    is_of_streams_alone,
    may_be_harmless,
    waits_with_others,
)
from hanglab.analyzer.graph.roots import WaitCycle, WaitEnd, WaitRoots
from hanglab.analyzer.graph.sibling_groups import odd_beside_siblings
from hanglab.analyzer.graph.thresholds import SMALL
from hanglab.analyzer.graph.wait_for_graph import Cycle, Unmatched
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.graph.wrong_group import WrongGroup, find_wrong_group, repeats_call
from hanglab.analyzer.graph.wrong_peer import find_wrong_peer
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.issue_order import find_rank_ahead, jumps_over
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.recorder.case.operations import op_of


class RingReader:
    """Reads rings of waits: as deadlocks, or the work of one rank that did something else."""

    def __init__(
        self,
        merged: MergedSummaries,
        groups: Sequence[ResolvedGroup],
        calls: CallsOfRanks,
        departures: DepartureFinder,
    ) -> None:
        self._merged = merged
        self._groups = groups
        self._calls = calls
        self._departures = departures
        self._lookup = calls.lookup
        self.cycles: list[Cycle] = []
        self.unmatched: list[Unmatched] = []
        #: Ranks without evidence that may be what a ring of others waits for.
        self.undecided: set[int] = set()
        #: Ranks of rings that go on without what they seem to wait for, and did not.
        self.stopped_hosts: list[WaitEnd] = []

    def read(self, roots: WaitRoots, important: set[int], waits: OpenOperations) -> None:
        """Read all rings; ranks to be shown in full are added to ``important``."""
        for cycle in roots.cycles:
            self._read_one(cycle, important, waits)

    def _read_one(self, cycle: WaitCycle, important: set[int], waits: OpenOperations) -> None:
        cycle.certain = cycle.certain or self._confirmed_by_counts(cycle)
        ranks = tuple(cycle.places)
        full = self._calls.small or len(ranks) <= SMALL
        if full:
            important.update(ranks)
        calls = {}
        for rank in ranks:
            waiting = cycle.places[rank]
            pending = waiting.waiters[rank]
            calls[rank] = self._calls.call(rank, pending, waiting.group.group, full)
        p2p = [waiting.seq is None for waiting in cycle.places.values()]
        kept = full and not any(p2p) and have_common_order(cycle, self._lookup)
        if not (all(p2p) or kept) and may_be_harmless(cycle):
            # Their orders differ, which may be harmless, as that of two threads is, unless they
            # were one before: the ranks of which nothing is known may be what all wait for.
            self.undecided.update(r for w in cycle.places.values() for r in w.unknown)
            return
        owed = owed_operations(cycle, self._lookup) if full and not cycle.knot else []
        missing = find_mismatched_halves(cycle.places, self._groups, self._lookup) if full else None
        if missing is None and full:
            missing = find_untaken_send(cycle.places, self._merged, self._groups, self._lookup)
        if missing is not None:
            first, second = missing.ranks
            by = () if missing.deviating is None else (missing.deviating,)
            sent = calls[first] if missing.ended is None else self._calls.at(first, missing.ended)
            self.unmatched.append(Unmatched(sent or calls[first], calls[second], by, missing=True))
            return
        if full and any(p2p) and not all(p2p) and self._kindred_left(cycle)[0] is not None:
            passed = self._passed_over(cycle, calls)
            if passed is not None:
                self.unmatched.append(passed)
            else:
                self._enter_cycle(cycle, calls, full, waits)
            return
        miscounted = self._miscounted(cycle, calls, waits) if full and any(p2p) else None
        if miscounted is not None and miscounted.likely and not all(p2p):
            # What its own rounds tell of another one is told by more than how often it did it.
            miscounted = self._passed_over(cycle, calls) or miscounted
        if miscounted is not None:
            self.unmatched.append(miscounted)
            if miscounted.likely and not cycle.knot:
                # Where the ranks stand in their loops may prove it.
                self.cycles.append(Cycle(ranks, tuple(calls.values()), all(p2p)))
            return
        if cycle.knot:
            if all(place.any_source for place in cycle.places.values()):
                self.cycles.append(Cycle(ranks, tuple(calls.values()), True))
            else:
                self.undecided.update(ranks)
            return
        left_out = left_out_by_one(owed, waits, self._lookup)
        if left_out is not None:
            self.unmatched.append(self._left_out(left_out, calls))
            return
        stopped = host_that_stopped(owed)
        if stopped is not None:
            awaited = [w for w in waits.operations.values() if stopped in w.absent]
            end = WaitEnd(stopped, awaited, "outside", elsewhere=True)
            self.stopped_hosts.append(end)
            important.add(stopped)
            return
        if full and all(p2p) and cycle.certain:
            alone = self._on_new_channel(cycle, calls, alone=True)
            if alone is not None:
                self.unmatched.append(alone)
                return
        unsettled = {
            rank for rank in waits.unsettled.intersection(ranks)
            if not waits_with_others(rank, cycle, waits)
        }  # fmt: skip
        unsure = set(ranks) if was_passed_before(owed) else unsettled
        late = [one for one in owed if one.order is OwedOrder.LATE]
        if unsure and late and cycle.certain and len(ranks) == 2 and all(p2p):
            # One of the two left a half out, wherever their hosts are.
            self.unmatched.append(Unmatched(calls[late[0].waiter], calls[late[0].rank]))
            return
        if unsure and not (full and not any(p2p) and self._wrong_group(cycle, calls)):
            # They may wait for what they have started, or do something else.
            if not (full and self._name_either_way(cycle, calls, unsure, waits)):
                self.undecided.update(unsure)
            return
        if all(p2p) and is_of_queues_alone(cycle):
            self.undecided.update(ranks)
            return
        if full and not any(p2p):
            if (is_of_streams_alone(cycle) and not kept) or are_own_orders(cycle, self._lookup):
                self.undecided.update(ranks)
                return
        if not cycle.certain and (
            any(p2p)
            or any_left_out(cycle)
            or any_come_unseen(cycle, self._lookup)
            or any_of_a_batch(cycle, waits, self._merged, self._lookup)
        ):
            # Whether the halves that seem to lack have come is not known.
            self.undecided.update(ranks)
            return
        self._enter_cycle(cycle, calls, full, waits)

    def _name_either_way(
        self, cycle: WaitCycle, calls: dict[int, Call], unsure: set[int], waits: OpenOperations
    ) -> bool:
        """Name the one rank of a ring that may do something else, where the ring is its work, too.

        It holds all others up, whether it stopped on its host or waits for them.  Had another one
        stopped, those who are left would still wait for each other.  Or the one whose own messages
        show that it took the wrong peer, wherever the hosts are.
        """
        if unsure.isdisjoint(waits.unsettled):
            return False
        misdirected = self._misdirected(cycle, calls, waits)
        if misdirected is not None and (
            not misdirected.likely or set(misdirected.deviating) == unsure
        ):
            self.unmatched.append(misdirected)
            return True
        if len(cycle.keys) != 1 or any(w.seq is None for w in cycle.places.values()):
            return False
        (rank,) = cycle.keys
        if rank not in unsure:
            return False
        awaited = [w for w in waits.operations.values() if rank in w.absent]
        if len({waiter for w in awaited for waiter in w.waiters} - {rank}) < 2:
            return False
        self.stopped_hosts.append(WaitEnd(rank, awaited, "outside", elsewhere=True))
        return True

    def _enter_cycle(
        self, cycle: WaitCycle, calls: dict[int, Call], full: bool, waits: OpenOperations
    ) -> None:
        """Enter a ring that holds its ranks up, and who of them deviates."""
        ranks = tuple(cycle.places)
        p2p = [waiting.seq is None for waiting in cycle.places.values()]
        # With messages in a ring, whoever could free all has only what the others lack.
        vote = None if any(p2p) else self._departures.vote(ranks)
        deviating = () if any(p2p) else self._out_of_order(cycle, vote)
        wrong_group = None
        lacking = any(one.absent or one.unknown for one in cycle.places.values())
        if full and not any(p2p) and lacking:
            # Else all have issued all of it: what differs is the order.
            wrong_group = self._wrong_group(cycle, calls)
        if wrong_group is not None and wrong_group.deviating is not None:
            deviating = (wrong_group.deviating,)
        # Of two that have called equally often, neither lacks a call.
        collectives = full and not any(p2p)
        level = collectives and is_level(cycle)
        misdirected = self._misdirected(cycle, calls, waits) if full and any(p2p) else None
        mixed = full and any(p2p) and not all(p2p) and self._kindred_left(cycle)[0] is None
        if mixed and (misdirected is None or misdirected.likely):
            passed = self._passed_over(cycle, calls)
            if passed is not None:
                self.unmatched.append(passed)
                return
        outvoted_by = 0
        left = None
        if full and not deviating:
            left, outvoted_by = self._left_own_rounds(cycle, any(p2p))
        if misdirected is None and all(p2p):
            misdirected = self._on_new_channel(cycle, calls)
            if misdirected is None and is_of_one_rank(cycle, waits, self._lookup):
                self.undecided.update(ranks)
                return
        if misdirected is not None:
            self.unmatched.append(misdirected)
        elif left is not None and (outvoted_by or all(p2p) or not any(p2p)):
            deviating = (left,) if vote is None else vote.side_of(left)
        # Whoever could free all need not be who left the order.
        keys = cycle.keys if any(p2p) or self._may_have_left(cycle.keys, cycle, vote) else ()
        self.cycles.append(
            Cycle(
                ranks,
                tuple(calls.values()),
                all(p2p),
                deviating=deviating,
                candidates=tuple(sorted(keys or ranks)),
                certain=cycle.certain,
                wrong_group=wrong_group is not None,
                outvoted_by=len(vote.more)
                if vote is not None and deviating == vote.fewer
                else outvoted_by,
                parted=vote is not None and not deviating and len(vote.fewer) > 1,
                miscounted=collectives and not level and self._miscounts(ranks),
                crossed_before=collectives and have_crossed(cycle, self._lookup),
                lacks_message=not all(p2p)
                and any(one.seq is None and one.absent for one in cycle.places.values()),
                repeated=collectives
                and len(deviating) == 1
                and repeats_call(
                    deviating[0],
                    calls,
                    cycle.places[deviating[0]].waiters[deviating[0]].index,
                    self._lookup,
                    level=level,
                ),
            )
        )
        if any(p2p) and not all(p2p) and misdirected is None and len(ranks) == 2 and not deviating:
            # In a longer ring the peer may be late because of others.
            for rank in ranks:
                peer = cycle.places[rank].peer
                if peer in calls and cycle.places[peer].seq is not None:
                    queued = bool(cycle.places[rank].behind)
                    place = cycle.places[peer]
                    index, alone = place.waiters[peer].index, place.leaders <= {peer}
                    # Where a third rank left its own rounds as well, they may be over for all.
                    third = waits.by_rank.keys() - {rank, peer}
                    keeping = all(self._departures.left_own_order_at(r) is None for r in third)
                    by: tuple[int, ...] = ()
                    if keeping and self._departures.may_repeat(peer, index, alone=alone):
                        by = (peer,)
                    likely = not (by or queued) and _is_missed_by_others(rank, peer, waits)
                    self.unmatched.append(
                        Unmatched(
                            calls[rank],
                            calls[peer],
                            (peer,) if likely else by,
                            queued=queued,
                            likely=likely,
                        )
                    )

    def _left_own_rounds(self, cycle: WaitCycle, messages: bool) -> tuple[int | None, int]:
        """The one rank of a ring that left its rounds; one of each would have held up the first.

        Of messages the one that left what others of its kind do, and how many these are.
        """
        waited = {rank: place.waiters[rank].index for rank, place in cycle.places.items()}
        left, outvoted_by, shared = self._kindred_left(cycle) if messages else (None, 0, {})
        if left is not None:
            return left, outvoted_by
        return self._departures.left_own_order_alone(waited, shared=shared), 0

    def _kindred_left(self, cycle: WaitCycle) -> tuple[int | None, int, dict[int, int]]:
        """The one rank of a ring that left the order of its kind, of how many.

        And by rank, how many of its calls its kind has made alike.
        """
        told = {
            rank: self._departures.kindred(rank, place.waiters[rank].index)
            for rank, place in cycle.places.items()
        }
        left = [rank for rank, one in told.items() if one.outvoted_by]
        shared = {rank: one.shared for rank, one in told.items()}
        if len(left) != 1:
            return None, 0, shared
        return left[0], told[left[0]].outvoted_by, shared

    def _passed_over(self, cycle: WaitCycle, calls: dict[int, Call]) -> Unmatched | None:
        """The collective that one rank of a ring left out, by its rounds and those of who is in it.

        All others of its group are in it: else nobody knows whose it is.
        """
        for waiter, place in cycle.places.items():
            lacking = [*place.absent, *place.unknown, *place.behind]
            if place.seq is None or len(lacking) != 1 or lacking[0] not in cycle.places:
                continue
            (rank,) = lacking
            waited = {one: p.index for one, p in place.waiters.items() if one != rank}
            waited[rank] = cycle.places[rank].waiters[rank].index
            if len(waited) > 2 and self._departures.left_own_order_alone(waited) == rank:
                return Unmatched(calls[waiter], calls[rank], (rank,), by_rounds=True)
        return None

    def _wrong_group(self, cycle: WaitCycle, calls: dict[int, Call]) -> WrongGroup | None:
        indices = {rank: place.waiters[rank].index for rank, place in cycle.places.items()}
        return find_wrong_group(calls, indices, self._lookup)

    def _out_of_order(self, cycle: WaitCycle, vote: Vote | None) -> tuple[int, ...]:
        """Ranks of a ring of collectives that alone keep another order than the rest."""
        if vote is not None and vote.decided:
            return vote.fewer
        found = self._alone_out_of_order(cycle, vote)
        return found if self._may_have_left(found, cycle, vote) else ()

    def _may_have_left(self, ranks: Sequence[int], cycle: WaitCycle, vote: Vote | None) -> bool:
        """False for ranks that keep to what all did before, or are some of those who went alike."""
        kept = any(kept_order_alone(rank, cycle, self._lookup) for rank in ranks)
        return not kept and (vote is None or vote.allows(ranks))

    def _alone_out_of_order(self, cycle: WaitCycle, vote: Vote | None) -> tuple[int, ...]:
        """Ranks that do by who came first, who changed, and what their own rounds tell."""
        if len(cycle.keys) == 1 and not _may_be_more(vote, cycle.keys[0]):
            return cycle.keys
        lacking = [rank for rank, place in cycle.places.items() if place.absent or place.unknown]
        if len(lacking) == 1:
            # It alone has issued all of the ring, and what several have not who wait in the rest.
            inside = {rank for place in cycle.places.values() for rank in place.waiters}
            several = len(inside.intersection(cycle.places[lacking[0]].absent)) > 1
            if several and not _may_be_more(vote, lacking[0]):
                return tuple(lacking)
        changed = who_changed_order(cycle, self._lookup)
        if len(changed) > 1:
            return changed
        alone = alone_in_order(cycle)
        if alone is not None:
            return () if _may_be_more(vote, alone) else (alone,)
        indices = {rank: cycle.places[rank].waiters[rank].index for rank in cycle.keys}
        rank_ahead = find_rank_ahead(indices, self._lookup)
        if rank_ahead is None:
            rank_ahead = odd_beside_siblings(cycle, self._groups, self._lookup)
        return (rank_ahead,) if rank_ahead is not None else ()

    def _miscounts(self, ranks: tuple[int, ...]) -> bool:
        """True if later calls of a ring of two show that it is none of orders: one lacks a call."""
        return len(ranks) == 2 and self._departures.orders.is_swap(*ranks) is False

    def _confirmed_by_counts(self, cycle: WaitCycle) -> bool:
        """True if counting again confirms what each rank of a ring lacks."""
        for waiting in cycle.places.values():
            if not waiting.certain:
                posted = posted_by_counts(waiting, self._lookup)
                if posted is None or posted != (not waiting.absent):
                    return False
        return True

    def _misdirected(
        self, cycle: WaitCycle, calls: dict[int, Call], waits: OpenOperations
    ) -> Unmatched | None:
        """The one send or receive of a ring that is not what its rank had to do, if any."""
        wrong_peer = find_wrong_peer(cycle, waits, self._lookup)
        if wrong_peer is not None:
            peer = wrong_peer.waiting.peer
            missed = tuple(
                self._calls.call(rank, pending, waiting.group.group, full=True)
                for waiting in wrong_peer.missed
                for rank, pending in waiting.waiters.items()
            )
            instead = calls.get(peer) if peer is not None else None
            waiting, rank = wrong_peer.waiting, wrong_peer.rank
            return Unmatched(
                self._calls.call(rank, waiting.waiters[rank], waiting.group.group, full=True),
                instead,
                (rank,) if wrong_peer.known else (),
                missed,
                likely=not wrong_peer.sure,
            )
        indices = {rank: waiting.waiters[rank].index for rank, waiting in cycle.places.items()}
        p2p = all(waiting.seq is None for waiting in cycle.places.values())
        rank_ahead = find_rank_ahead(indices, self._lookup) if p2p else None
        if rank_ahead is None or not has_known_rounds(
            self._lookup.entries(rank_ahead), indices[rank_ahead]
        ):
            return None
        waiter = next(r for r, w in cycle.places.items() if rank_ahead in w.blockers(r))
        if not jumps_over(
            self._lookup.entries(rank_ahead),
            indices[rank_ahead],
            cycle.places[waiter].group.group.name,
            cycle.places[waiter].waiters[waiter],
        ):
            return None
        return Unmatched(calls[waiter], calls[rank_ahead], (rank_ahead,))

    def _on_new_channel(
        self, cycle: WaitCycle, calls: dict[int, Call], *, alone: bool = False
    ) -> Unmatched | None:
        """The one message of a ring that is new to both of its ends, whichever is wrong."""
        rank = find_message_alone_in_group(cycle) if alone else find_new_channel(cycle)
        if rank is None or _would_meet_another(calls):
            return None
        peer = cycle.places[rank].peer
        return Unmatched(calls[rank], calls.get(peer) if peer is not None else None)

    def _miscounted(
        self, cycle: WaitCycle, calls: dict[int, Call], waits: OpenOperations
    ) -> Unmatched | None:
        """The message of a ring that one rank sent, or waits for, other than it used to."""
        found = find_miscount(cycle.places, waits, self._lookup)
        if found is None:
            return None
        by = () if found.deviating is None else (found.deviating,)
        return Unmatched(
            calls[found.rank], calls[found.peer], by, likely=found.likely, sender=found.sender
        )

    def _left_out(self, owed: Owed, calls: dict[int, Call]) -> Unmatched:
        return Unmatched(calls[owed.waiter], calls[owed.rank], (owed.rank,))


def _would_meet_another(calls: Mapping[int, Call]) -> bool:
    """True if a message would meet that of a third one of its ring, by its size, but for its peer.

    Then it may have been for that one, and no channel need be new.
    """
    return any(
        other.peer == one.rank
        and one.peer != other.rank
        and other.op == op_of(one.op).other_half
        and one.group == other.group
        and one.arguments.input_sizes == other.arguments.input_sizes
        for one in calls.values()
        for other in calls.values()
        if one.seq is None and other.seq is None
    )


def _may_be_more(vote: Vote | None, rank: int) -> bool:
    """True if as many may have gone on as a rank did as those who went on otherwise."""
    return vote is not None and vote.may_be_more(rank)


def _is_missed_by_others(rank: int, peer: int, waits: OpenOperations) -> bool:
    """True if other ranks, too, wait for ``peer`` in messages: one that owes several owes this.

    Each of these would else have one too many.  But not of fewer than those who stand with ``peer``
    in its collective: then the few may be the odd ones, such as workers that had a batch more.  Who
    has been to that, or has no part in it, waits for what comes behind it.
    """
    here = waits.first(peer)
    been = {other for waiting in here for other in waiting.finished}
    due = {other for waiting in here for other in waiting.group.members} - been - {peer}
    missing = {
        other for other in due & waits.by_rank.keys() for waiting in waits.first(other)
        if waiting.seq is None and peer in waiting.absent
    } | {rank}  # fmt: skip
    beside = max((len(waiting.waiters) for waiting in here), default=0)
    return len(missing) > 1 and len(missing) >= beside
