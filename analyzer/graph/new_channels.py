"""Messages of a ring on a channel that nobody has used before, where all others of it are usual.

A ring that the program itself closes stops each run at its first round.  Where ranks have exchanged
messages as they do now, and one message alone is new to both of its ends, it is that one which
does not belong there: whether it is one too many or its other half was left out is not told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from hanglab.analyzer.graph.message_balance import UnmatchedMessages
from hanglab.analyzer.graph.roots import WaitCycle
from hanglab.analyzer.graph.thresholds import MOST_OPEN, USUAL_MESSAGES
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.summary import P2PChannel, Pending
from hanglab.recorder.case.operations import op_of


def find_new_channel(cycle: WaitCycle) -> int | None:
    """The rank that waits in the one message of a ring that is new; None without such a one."""
    alone = find_message_alone_in_group(cycle)
    if alone is not None:
        return alone
    new = [rank for rank, waiting in cycle.places.items() if not _used(rank, waiting)]
    return new[0] if len(new) == 1 and len(cycle.places) > 2 else None


def find_message_alone_in_group(cycle: WaitCycle) -> int | None:
    """The rank that waits in the one message of a ring on whose group nobody else ever had one."""
    lone = [rank for rank, waiting in cycle.places.items() if _alone_in_group(rank, waiting)]
    return lone[0] if len(lone) == 1 else None


def find_stray_messages(
    waits: OpenOperations, groups: Sequence[ResolvedGroup]
) -> Iterator[UnmatchedMessages]:
    """Messages without their other half that are the first of their groups, and the only ones.

    Between two who exchange them the same way in another group, again and again: either their rank
    has taken the wrong group, or its peer has left them out.  Where all else was issued, and the
    other group lacks one of the rank's, which goes on in it, it was that one.
    """
    for waiting in islice(waits.operations.values(), MOST_OPEN):
        (rank, *_), peer = waiting.waiters, waiting.peer
        if waiting.seq is not None or peer is None or waiting.absent != [peer]:
            continue
        if waiting.explained or not _alone_in_group(rank, waiting):
            continue
        sends = op_of(waiting.op).sends
        ends = (rank, peer) if sends else (peer, rank)
        if waiting in waits.first(rank) and any(
            half.peer == rank and rank in half.absent and op_of(half.op).sends != sends
            for half in waits.first(peer)
        ):
            continue  # They miss each other, in a ring of two.
        usual = [
            posted
            for group in groups
            if group is not waiting.group and (posted := _exchanged(group, *ends)) is not None
        ]
        if usual:
            # Nor has the one that it would have met there.
            others = (o for o in waits.operations.values() if {*o.waiters, o.peer} != {*ends})
            issued = not any(one.absent or one.unknown for one in others)
            moved = issued and len(usual) == 1 and _lacks_one(rank, ends, usual[0])
            moved = moved and _goes_on_as_usual(rank, waiting, waits)
            yield UnmatchedMessages((waiting,), frozenset(ends), rank if moved else None)


def _goes_on_as_usual(rank: int, waiting: OpenOperation, waits: OpenOperations) -> bool:
    """True if the rank has issued further messages to its peer in another group: no new phase."""
    mine = waiting.waiters[rank]
    sends = op_of(waiting.op).sends
    return any(
        pending.index > mine.index
        and other.peer == waiting.peer
        and other.group is not waiting.group
        and op_of(other.op).sends == sends
        for pending, other in waits.by_rank.get(rank, [])
    )


def _lacks_one(rank: int, ends: tuple[int, int], posted: tuple[int, int]) -> bool:
    """True if the usual group lacks one message of ``rank``, all that there is of both issued."""
    mine, theirs = posted if rank == ends[0] else reversed(posted)
    return mine + 1 == theirs


def _exchanged(group: ResolvedGroup, sender: int, receiver: int) -> tuple[int, int] | None:
    """Numbers of messages that both ends have issued from the one to the other in a group.

    None unless these are several.
    """
    if group.doubtful or group.misnamed or not {sender, receiver} <= set(group.members):
        return None
    src, dst = (group.members.index(rank) for rank in (sender, receiver))
    found = []
    for rank in (sender, receiver):
        progress = group.progress.get(rank)
        channels = progress.part.channels if progress is not None and progress.part else []
        posted = sum(
            one.posted
            for one in channels
            if _is_of(one, src, dst) and one.sends == (rank == sender)
        )
        if posted < USUAL_MESSAGES:
            return None
        found.append(posted)
    return found[0], found[1]


def _alone_in_group(rank: int, waiting: OpenOperation) -> bool:
    """True if no other rank has ever sent or received anything in the group of a message."""
    users = [
        one
        for one, progress in waiting.group.progress.items()
        if progress.part is not None and progress.part.channels
    ]
    return users == [rank] and len(waiting.group.members) > 1 and waiting.certain


def may_be_misdirected(waiting: OpenOperation, waits: OpenOperations, lookup: CallLookup) -> bool:
    """True if a message is new to both of its ends, and would meet that of a third rank.

    By its size, and but for its peer: who waits in it may have had to do it with that one.
    """
    if waiting.seq is not None or waiting.peer is None or len(waiting.waiters) != 1:
        return False
    ((rank, mine),) = waiting.waiters.items()
    sizes = _sizes(rank, mine, lookup)
    return not _used(rank, waiting) and any(
        other.peer == rank
        and other.group is waiting.group
        and op_of(other.op).sends != op_of(waiting.op).sends
        and any(
            one != waiting.peer and sizes is not None and sizes == _sizes(one, theirs, lookup)
            for one, theirs in other.waiters.items()
        )
        for other in waits.operations.values()
        if other.seq is None
    )


def _sizes(rank: int, pending: Pending, lookup: CallLookup) -> object:
    entries = lookup.entries(rank)
    return None if entries is None else entries.arguments_at(pending.index).input_sizes


def _used(rank: int, waiting: OpenOperation) -> bool:
    """True if a message went through the channel before, as far as either end knows."""
    pending = waiting.waiters[rank]
    for one in (rank, waiting.peer):
        progress = waiting.group.progress.get(one) if one is not None else None
        channels = progress.part.channels if progress is not None and progress.part else []
        if any(_is_of(channel, pending.src, pending.dst) and channel.done for channel in channels):
            return True
    return False


def _is_of(channel: P2PChannel, src: int, dst: int) -> bool:
    return (channel.src, channel.dst) == (src, dst)
