"""Sends and receives of each rank since its last round, held against earlier rounds and peers.

Where a message has no other half, either its rank did one too many or the other side one too
few.  A round is what a rank does between two collectives of the group that the one who is past
the messages waits in: the side that kept to its own rounds is right, and without any, the side
that counts as the rest of the group does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries
from hanglab.analyzer.graph.mismatched_halves import first_untaken_send
from hanglab.analyzer.graph.thresholds import (
    AGREEING_COUNTS,
    COMPARED_MEMBERS,
    COMPARED_ROUNDS,
    KNOWN_ROUNDS,
)
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.recorder.case.operations import op_of

#: Whether it is a send, and the other rank within the group; ABSENT for any source.
_Use = tuple[bool, int]


@dataclass(frozen=True)
class Miscount:
    """``rank`` sent or took one too many, or one too few: ``waiting`` has no other half."""

    waiting: OpenOperation
    #: The rank that waits in it, and the one that it waits for.
    rank: int
    peer: int
    #: None where it is either the peer or ``sender``.
    deviating: int | None
    #: Only the rest of the group tells, not the earlier rounds of the two.
    likely: bool
    #: The one that sent more than its share to a peer that takes from anybody.
    sender: int | None = None


@dataclass
class _Messages:
    """Operations of one rank since its last round."""

    now: Counter[_Use]
    #: It is past them: it waits in a collective.
    final: bool
    rounds: list[Counter[_Use]]

    def most(self, use: _Use) -> int | None:
        """The most of a kind in an earlier round; None where too few are known.

        Or where rounds that had any differ: a program may have more from round to round.
        """
        known = [one[use] for one in self.rounds]
        counts = {count for count in known if count} or {0}
        return counts.pop() if len(known) >= KNOWN_ROUNDS and len(counts) == 1 else None

    def fewest(self, use: _Use) -> int | None:
        """The fewest of a kind in an earlier round; None where :meth:`most` is not known."""
        most = self.most(use)
        return most if most is None or all(one[use] for one in self.rounds) else 0


def find_miscount(
    places: Mapping[int, OpenOperation], waits: OpenOperations, lookup: CallLookup
) -> Miscount | None:
    """The one rank of those in ``places`` that counted otherwise; None where nothing tells."""
    for rank, waiting in places.items():
        members = waiting.group.members
        if waiting.seq is not None or len(members) > COMPARED_MEMBERS:
            continue
        past = [
            one
            for one in waiting.absent
            if one in places
            and places[one].seq is not None
            # Who has no part in the collective has no rounds by it.
            and rank in places[one].group.members
        ]
        answered = waiting.any_source and all(
            one in places and places[one].peer == rank and rank in places[one].absent
            for one in waiting.absent
        )
        if not (past or answered):
            continue
        marks = places[past[0]].group.group.name if past else None
        standing = {one: first[0] for one in members if (first := waits.first(one))}
        messages = {
            one: exchanged
            for one, place in {**standing, **places}.items()
            if one in members
            and (exchanged := _messages_of(one, waiting, place, marks, lookup)) is not None
        }
        if rank not in messages:
            continue
        found = (
            _of_senders(rank, past[0], waiting, messages)
            if past and _took_from_any(messages.get(past[0]))
            else _of_those_in_debt(rank, waiting, messages)
            if answered
            else _of_any_source(rank, waiting, messages)
            if waiting.any_source
            else _of_pair(
                rank,
                past[0],
                waiting,
                messages,
                _waiting_for(rank, waiting, waits),
                places[past[0]].group.members,
                untaken=_is_sent_more(rank, past[0], waiting, lookup),
            )
        )
        if found is not None:
            return found
    return None


def _waiting_for(rank: int, waiting: OpenOperation, waits: OpenOperations) -> set[int]:
    """Ranks that wait for a rank in the group to do with them what it does with another."""
    return {
        one
        for other in waits.operations.values()
        if other.group is waiting.group and other.seq is None and other.peer == rank
        if rank in other.absent and op_of(other.op).sends != op_of(waiting.op).sends
        for one in other.waiters
    }


def _is_sent_more(rank: int, peer: int, waiting: OpenOperation, lookup: CallLookup) -> bool:
    """True if a rank that receives from ``peer`` has not taken what a third one has sent to it."""
    group = waiting.group
    return not op_of(waiting.op).sends and any(
        first_untaken_send(group, member, rank, lookup) is not None
        for member in group.members
        if member not in (rank, peer)
    )


def _of_pair(
    rank: int,
    peer: int,
    waiting: OpenOperation,
    messages: Mapping[int, _Messages],
    missing: set[int],
    comparable: Collection[int],
    *,
    untaken: bool,
) -> Miscount | None:
    """``missing`` wait for the rank; ``untaken``: another one has sent what it never took.

    ``comparable`` are the ranks whose round ends where the peer is.
    """
    members = waiting.group.members
    sends = op_of(waiting.op).sends
    use, counterpart = (sends, members.index(peer)), (not sends, members.index(rank))
    mine, theirs = messages[rank], messages.get(peer)
    if theirs is None:
        return None
    count, other = mine.now[use], theirs.now[counterpart]
    if other >= count:
        return None
    most, fewest = mine.most(use), theirs.fewest(counterpart)
    if most is not None and fewest is not None:
        # Of what it never did before nobody knows how often it may.
        if most and (count > most) != (other < fewest):
            if missing and count <= most:
                return None  # It may have been for one of those, who wait for the rank.
            return Miscount(waiting, rank, peer, rank if count > most else peer, likely=False)
        return None
    if missing and not other:
        # All others in turn, each once?
        served = {members[place] for kind, place in mine.now if kind is sends} - {peer}
        in_turn = mine.now.keys() == {(sends, members.index(one)) for one in (peer, *served)}
        # By their places counted from its own: else it may have taken the one for the other.
        own, size = members.index(rank), len(members)
        turns = [(place - own) % size for _, place in mine.now]
        due = sorted(turns + [(members.index(one) - own) % size for one in missing])
        in_turn = in_turn and turns in (due[: len(turns)], due[::-1][: len(turns)])
        once = served and set(mine.now.values()) == {count} and served.isdisjoint(missing)
        if in_turn and once and {rank, peer, *served, *missing} == set(members):
            return Miscount(waiting, rank, peer, peer, likely=True)
        return None
    if not other and (untaken or any(kind is not sends for kind, _ in theirs.now)):
        # It may have done its part with somebody else, as its rank should have, or was to have.
        return None
    rest = {one: messages[one] for one in messages.keys() & {*comparable} - {rank, peer}}
    if len({number for m in rest.values() if m.final for number in m.now.values()}) > 1:
        return None  # Who is through with them has as many with each, or such numbers tell nothing.
    pairs = [
        (one, m, members[place], n) for one, m in rest.items() for (_, place), n in m.now.items()
    ]
    # Both ends of a pair have as many by right: they are one witness.
    for_rank = {frozenset({one, end}) for one, _, end, n in pairs if n == count}
    if other:
        for_rank |= {frozenset({one}) for one, m, _, n in pairs if not m.final and n > count}
    for_peer = {
        frozenset({one, end}) for one, m, end, n in pairs if other and m.final and n == other
    }
    before = {(a[use], b[counterpart]) for a, b in zip(mine.rounds, theirs.rounds, strict=False)}
    # Rounds of the two are too few to tell, but they may speak against the others.
    if len(for_rank) >= AGREEING_COUNTS and not for_peer and before != {(other, other)}:
        return Miscount(waiting, rank, peer, peer, likely=True)
    if len(for_peer) >= AGREEING_COUNTS and not for_rank and before != {(count, count)}:
        return Miscount(waiting, rank, peer, rank, likely=True)
    return None


def _of_any_source(
    rank: int, waiting: OpenOperation, messages: Mapping[int, _Messages]
) -> Miscount | None:
    members = waiting.group.members
    use, counterpart = (False, ABSENT), (True, members.index(rank))
    senders = {one: mine for one, mine in messages.items() if one != rank and one in waiting.absent}
    if len(senders) < len(members) - 1 or not all(one.final for one in senders.values()):
        return None
    most = messages[rank].most(use)
    fewest = {one: mine.fewest(counterpart) for one, mine in senders.items()}
    if most is not None and all(known is not None for known in fewest.values()):
        if not most:
            return None
        few = [one for one, known in fewest.items() if senders[one].now[counterpart] < (known or 0)]
        if (messages[rank].now[use] > most) and not few:
            return Miscount(waiting, rank, next(iter(senders)), rank, likely=False)
        if len(few) == 1 and messages[rank].now[use] <= most:
            return Miscount(waiting, rank, few[0], few[0], likely=False)
        return None
    counts = Counter(mine.now[counterpart] for mine in senders.values())
    if len(counts) != 2:
        return None
    (usual, agreeing), (unusual, alone) = sorted(counts.items(), reverse=True)
    # As many as all had sent, had the one sent as many as the others, or as the other one of two.
    all_alike = messages[rank].now[use] == usual * len(senders)
    if alone != 1 or not (agreeing >= AGREEING_COUNTS or all_alike):
        return None
    few = [one for one, mine in senders.items() if mine.now[counterpart] == unusual]
    return Miscount(waiting, rank, few[0], few[0], likely=True)


def _took_from_any(messages: _Messages | None) -> bool:
    return messages is not None and messages.now[False, ABSENT] > 0


def _of_senders(
    rank: int, peer: int, waiting: OpenOperation, messages: Mapping[int, _Messages]
) -> Miscount | None:
    """The sender that took the turn of others at a rank that has taken from anybody, and as many.

    As many as all would have sent alike: the one that has sent one more is not the one that waits.
    Without another that is done and has sent that many, it may be the receiver that took too few.
    """
    use = True, waiting.group.members.index(peer)
    others = set(waiting.group.members) - {peer}
    if not (others <= messages.keys() and op_of(waiting.op).sends):
        return None
    sent = {one: messages[one].now[use] for one in others}
    share, rest = divmod(messages[peer].now[False, ABSENT], len(others))
    more = [one for one, count in sent.items() if count == share + 1 and messages[one].final]
    alike = [one for one, count in sent.items() if count == share]
    if rest or len(more) != 1 or len(alike) < len(others) - 1:
        return None
    told = any(messages[one].final for one in alike)
    return Miscount(waiting, rank, peer, more[0] if told else None, likely=True, sender=more[0])


def _of_those_in_debt(
    rank: int, waiting: OpenOperation, messages: Mapping[int, _Messages]
) -> Miscount | None:
    """Ranks that wait for the answer of one that takes from anybody, and did not ask for it.

    It has sent less for what it takes than all the others, who agree.
    """
    place = waiting.group.members.index(rank)
    balance = {
        one: messages[one].now[True, place] - messages[one].now[False, place]
        for one in waiting.absent
        if one in messages
    }
    counts = Counter(balance.values())
    if len(balance) < len(waiting.absent) or len(counts) != 2:
        return None
    (usual, agreeing), (less, alone) = counts.most_common()
    if agreeing < AGREEING_COUNTS or alone != 1 or less >= usual:
        return None
    (debtor,) = (one for one, count in balance.items() if count == less)
    return Miscount(waiting, rank, debtor, debtor, likely=True)


def _messages_of(
    rank: int, waiting: OpenOperation, place: OpenOperation, marks: str | None, lookup: CallLookup
) -> _Messages | None:
    """Messages that a rank exchanged in the group of ``waiting``, round by round."""
    entries = lookup.entries(rank)
    progress = waiting.group.progress.get(rank)
    if entries is None or progress is None or progress.part is None:
        return None
    rounds = list(
        _rounds(entries, waiting.group.group.name, marks, place, rank, progress.part.counted)
    )
    return _Messages(rounds[0], place.seq is not None, rounds[1:]) if rounds else None


def _rounds(
    entries: Entries, group: str, marks: str | None, place: OpenOperation, rank: int, whole: bool
) -> Iterator[Counter[_Use]]:
    """Messages of a rank in ``group``, from one collective of ``marks`` to the next, latest first.

    Only such as the ring still has from their beginning; ``whole`` if it has all of the group.
    Where the rank waits in a collective, only those that ended in one like it: the last step of a
    loop has fewer, and a call behind the loop.
    """
    collective = entries.in_group(marks) & ~entries.is_p2p
    # Where the rank waits in a collective, that one ends its round.
    end = place.waiters[rank].index if place.seq is not None else len(entries)
    if end == ABSENT:
        return
    ends = [end, *np.flatnonzero(collective[:end])[::-1].tolist()]
    mine = entries.in_group(group) & entries.is_p2p
    for after, before in zip(ends[: COMPARED_ROUNDS + 1], [*ends[1:], ABSENT], strict=False):
        if before == ABSENT and not whole:
            return
        if place.seq is not None and not _are_alike(entries, after, end):
            continue
        yield _counted(entries, np.flatnonzero(mine[before + 1 : after]) + before + 1)


def _are_alike(entries: Entries, one: int, other: int) -> bool:
    """True if two calls of a rank are of one operation with the same arguments."""
    return bool(
        entries.operation[one] == entries.operation[other]
        and entries.argument[one] == entries.argument[other]
    )


def _counted(entries: Entries, rows: Iterable[int]) -> Counter[_Use]:
    found: Counter[_Use] = Counter()
    for row in rows:
        operation = entries.operation_at(row)
        if operation.spec.half:
            found[operation.spec.sends, operation.peer] += 1
    return found
