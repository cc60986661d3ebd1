"""Sends and receives that went to another peer than the one that waits for them.

In a ring of sends and receives somebody may wait for the very rank that is busy
with somebody else.  That alone may be a matter of order; where the rank never
had to do with that peer before, or nobody else of the group exchanges messages
over that distance, it took the wrong peer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.message_rounds import did_rounds_alone, has_known_rounds
from hanglab.analyzer.graph.mismatched_halves import first_untaken_send
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.thresholds import AGREEING_DISTANCES, COMPARED_MEMBERS, USUAL_MESSAGES
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.graph.wrong_group import may_be_a_helper
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.signatures import call_site
from hanglab.recorder.case.operations import op_of

#: Whether it is a send, and the other rank within the group.
_Use = tuple[bool, int]


@dataclass(frozen=True)
class WrongPeer:
    """``rank`` is in ``waiting`` while each of ``missed`` waits for its other half from it.

    Or while ``untaken`` members of the group have sent what it has not taken.
    """

    rank: int
    waiting: OpenOperation
    missed: tuple[OpenOperation, ...]
    untaken: tuple[int, ...] = ()
    #: Its own earlier messages show it, all of which are known.
    sure: bool = False
    #: It has come round before, so that the peer is none of a schedule's next phase.
    known: bool = True


def find_wrong_peer(
    cycle: WaitCycle, waits: OpenOperations, lookup: CallLookup
) -> WrongPeer | None:
    """The one rank of a ring that took the wrong peer; None where nothing proves it."""
    candidates = [
        WrongPeer(rank, waiting, missed, untaken)
        for rank in cycle.places
        for _, waiting in waits.by_rank[rank]
        if waiting.peer is not None
        and waiting.peer in waiting.absent
        and any((
            missed := _missed(rank, waiting, waits, lookup),
            untaken := _untaken(rank, waiting, lookup),
        ))
    ]  # fmt: skip
    if not candidates:
        return None
    misdirected = [
        one
        for one in candidates
        if _against_usual_peers(one, lookup)
        and not _is_on_new_line(one, lookup)
        and not _is_in_common_exchange(one, lookup)
    ]
    if misdirected:
        # Where another one is new to its call, too, they have something new to do together; but who
        # is waited for in what it has often done has not come to its end with that.
        first = misdirected[0].rank
        others = {r: w for r, w in cycle.places.items() if w.seq is None and r != first}
        if any(_uses(r, w, lookup)[_own(r, w)] < USUAL_MESSAGES for r, w in others.items()):
            misdirected = [o for o in misdirected if o.untaken or _missing_as_ever(o, lookup)]
        misdirected = [
            one
            for one in misdirected
            if (_peer_is_in_message(one, cycle) and not _is_mutual(one, cycle))
            or _from_usual_call_site(
                one,
                lookup,
                alone=_is_mutual(one, cycle)
                and not (one.untaken or len(_missing_as_ever(one, lookup)) > 1),
            )
        ]
        if len(misdirected) > 1:
            # The others may have come to the next phase of a schedule.
            misdirected = [o for o in misdirected if _from_usual_call_site(o, lookup, alone=False)]
    if not misdirected:
        # A peer that is past all messages may have left its half of this one out.
        misdirected = [
            one
            for one in candidates
            if one.waiting is cycle.places[one.rank]
            and _peer_is_in_message(one, cycle)
            and (one.untaken or not _is_mutual(one, cycle))
            and _off_distance(one, lookup)
        ]
    if len(misdirected) != 1:
        return None
    (wrong_peer,) = misdirected
    unusual = _against_usual_peers(wrong_peer, lookup)
    return replace(
        wrong_peer,
        known=not unusual or _has_known_rounds(wrong_peer, cycle, lookup),
        sure=unusual and _is_whole(wrong_peer),
    )


def _has_known_rounds(wrong_peer: WrongPeer, cycle: WaitCycle, lookup: CallLookup) -> bool:
    """True if a rank had come round before, or alone left what all of a ring did from the first."""
    rank, waiting = wrong_peer.rank, wrong_peer.waiting
    entries, index = lookup.entries(rank), waiting.waiters[rank].index
    return has_known_rounds(entries, index) or (
        did_rounds_alone(entries, index, usual=False)
        and all(
            did_rounds_alone(lookup.entries(other), place.waiters[other].index, usual=True)
            for other, place in cycle.places.items()
            if other != rank
        )
    )


def _is_whole(wrong_peer: WrongPeer) -> bool:
    """True if all that the rank did in the group is known: older messages may be lost."""
    progress = wrong_peer.waiting.group.progress.get(wrong_peer.rank)
    return progress is not None and progress.part is not None and progress.part.counted


def _missed(
    rank: int, waiting: OpenOperation, waits: OpenOperations, lookup: CallLookup
) -> tuple[OpenOperation, ...]:
    """Calls that wait for ``rank`` to do with them what it does with another, by their rank."""
    sends = op_of(waiting.op).sends
    pending = waiting.waiters[rank]
    # It exchanges messages both ways with that one: it has no more to do with those.
    both = _uses(rank, waiting, lookup)[not sends, pending.dst if sends else pending.src] > 0
    found = [
        other
        for other in waits.operations.values()
        if other.seq is None
        and other.group is waiting.group
        and other.peer == rank
        and (rank in other.absent or rank in other.behind)
        and (both or op_of(other.op).sends != sends)
    ]
    # In an order that is not that of the dumps.
    return tuple(sorted(found, key=_issued))


def _untaken(rank: int, waiting: OpenOperation, lookup: CallLookup) -> tuple[int, ...]:
    """Members with whom a rank exchanges messages that have sent what it has not taken."""
    if op_of(waiting.op).sends:
        return ()
    members = waiting.group.members
    peers = {place for _, place in _uses(rank, waiting, lookup)}
    return tuple(
        place
        for place in sorted(peers)
        if members[place] != waiting.peer
        and first_untaken_send(waiting.group, members[place], rank, lookup) is not None
    )


def _issued(waiting: OpenOperation) -> tuple[int, int]:
    """The first rank that is in it, and the place among the entries of that rank."""
    rank = min(waiting.waiters)
    return rank, waiting.waiters[rank].index


def _uses(
    rank: int, waiting: OpenOperation, lookup: CallLookup, before: int | None = None
) -> Counter[_Use]:
    """Messages that a rank has exchanged with each peer of the group, counted up to an entry."""
    entries = lookup.entries(rank)
    used: Counter[_Use] = Counter()
    if entries is None:
        return used
    mine = entries.operation[:before][entries.in_group(waiting.group.group.name)[:before]]
    for number, count in zip(*np.unique(mine, return_counts=True), strict=True):
        operation = entries.operations[int(number)]
        if operation.src != ABSENT and operation.dst != ABSENT:
            used[operation.spec.sends, operation.peer] += int(count)
    return used


def _place(rank: int, waiting: OpenOperation) -> int:
    return waiting.group.members.index(rank)


def _own(rank: int, waiting: OpenOperation) -> _Use:
    """The rank's use of a peer in ``waiting``; it may be from any source."""
    pending = waiting.waiters[rank]
    sends = op_of(waiting.op).sends
    return sends, pending.dst if sends else pending.src


def _expected(wrong_peer: WrongPeer) -> list[_Use]:
    sends = op_of(wrong_peer.waiting.op).sends
    places = [_place(missed.key[1], missed) for missed in wrong_peer.missed]
    return [(sends, place) for place in (*places, *wrong_peer.untaken)]


def _against_usual_peers(wrong_peer: WrongPeer, lookup: CallLookup) -> bool:
    """True if the rank has this peer this once, and often had the one that waits."""
    mine = _uses(wrong_peer.rank, wrong_peer.waiting, lookup)
    return mine[_own(wrong_peer.rank, wrong_peer.waiting)] < 2 and any(
        mine[use] >= USUAL_MESSAGES for use in _expected(wrong_peer)
    )


def _missing_as_ever(wrong_peer: WrongPeer, lookup: CallLookup) -> set[int]:
    """Ranks that wait for the rank in what they have often done with it, new as others may be."""
    return {
        r
        for w in wrong_peer.missed
        for r in w.waiters
        if _uses(r, w, lookup, w.waiters[r].index)[_own(r, w)] >= USUAL_MESSAGES
    }


def _is_mutual(wrong_peer: WrongPeer, cycle: WaitCycle) -> bool:
    """True if the other rank is busy with the very same one, so that both may mean it."""
    peer = wrong_peer.waiting.peer
    theirs = cycle.places.get(peer) if peer is not None else None
    return theirs is not None and theirs.peer == wrong_peer.rank


def _peer_is_in_message(wrong_peer: WrongPeer, cycle: WaitCycle) -> bool:
    peer = wrong_peer.waiting.peer
    theirs = cycle.places.get(peer) if peer is not None else None
    return theirs is not None and theirs.seq is None


def _from_usual_call_site(wrong_peer: WrongPeer, lookup: CallLookup, *, alone: bool) -> bool:
    """True if the call comes from the line that usually serves one of those who wait.

    ``alone``: nothing else tells, so the line has to be known with those that lead to it.
    """
    entries = lookup.entries(wrong_peer.rank)
    index = wrong_peer.waiting.waiters[wrong_peer.rank].index
    if entries is None or not 0 <= index < len(entries) or int(entries.stack[index]) < 0:
        return False
    if alone and may_be_a_helper(entries.stack_at(index)):
        return False  # A schedule's next phase may begin in the line that served the one before.
    place = call_site(entries.stack_at(index))
    half = op_of(wrong_peer.waiting.op).half
    expected = {use[1] for use in _expected(wrong_peer)}
    for row in range(len(entries)):
        operation = entries.operation_at(row)
        if operation.peer in expected and operation.spec.half == half and entries.stack[row] >= 0:
            if call_site(entries.stack_at(row)) == place:
                return True
    return False


def _is_on_new_line(wrong_peer: WrongPeer, lookup: CallLookup) -> bool:
    """True if the rank made no other call from that line: a schedule's next phase begins so.

    And if it came to others again and again; in straight code each call has a line of its own.
    """
    entries = lookup.entries(wrong_peer.rank)
    index = wrong_peer.waiting.waiters[wrong_peer.rank].index
    if entries is None or not 0 <= index < len(entries) or int(entries.stack[index]) < 0:
        return False
    # What closes a batch, and the rest of it, are from the same line.
    calls = {
        (int(entries.stack[row]), number if (number := int(entries.p2p_seq[row])) > 0 else -row)
        for row in np.flatnonzero(entries.stack >= 0).tolist()
    }
    lines = Counter(call_site(entries.stacks[stack]) for stack, _ in calls)
    place = call_site(entries.stack_at(index))
    return place is not None and lines[place] == 1 and max(lines.values()) >= USUAL_MESSAGES


def _is_in_common_exchange(wrong_peer: WrongPeer, lookup: CallLookup) -> bool:
    """True if the rank has sent to, or taken from, that peer the other way round, as others do.

    These exchange messages over that distance, too: all may have come to the next phase.
    """
    rank, group = wrong_peer.rank, wrong_peer.waiting
    if len(group.group.members) > COMPARED_MEMBERS:
        return False
    use = sends, peer = _own(rank, group)
    others = set(group.group.members) - {rank, group.peer}
    return _uses(rank, group, lookup)[not sends, peer] > 0 and any(
        _distance(rank, group, use) in _distances(other, group, lookup) for other in others
    )


def _distance(rank: int, group: OpenOperation, use: _Use) -> int:
    """Distance that a message goes in a group, counted along the group's members."""
    sends, other = use
    way = other - _place(rank, group)
    return (way if sends else -way) % len(group.group.members)


def _distances(rank: int, group: OpenOperation, lookup: CallLookup) -> set[int]:
    return {_distance(rank, group, use) for use in _uses(rank, group, lookup)}


def _off_distance(wrong_peer: WrongPeer, lookup: CallLookup) -> bool:
    """True if nobody else of the group sends that far, and enough as far as is waited for.

    And if all others send as far as each other: distances of a plan tell nothing.  That is more
    than likely rather than sure: an exchange may be unlike all others.
    """
    group = wrong_peer.waiting
    if len(group.group.members) > COMPARED_MEMBERS:
        return False
    own = _distance(wrong_peer.rank, group, _own(wrong_peer.rank, group))
    others = {
        rank: _distances(rank, group, lookup)
        for rank in group.group.members
        if rank != wrong_peer.rank
    }
    if any(own in distances for distances in others.values()):
        return False
    if len({frozenset(distances) for distances in others.values() if distances}) > 1:
        return False
    return any(
        sum(_distance(wrong_peer.rank, group, use) in distances for distances in others.values())
        >= AGREEING_DISTANCES
        for use in _expected(wrong_peer)
    )
