"""Messages that went to another peer, told by the size with which they meet there.

A size that differs is wrong only where both messages were to meet.  One whose size its channel
never has otherwise, while a further member of the group waits for just that from the same rank,
was meant for this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hanglab.analyzer.graph.message_balance import UnmatchedMessages
from hanglab.analyzer.graph.thresholds import FULL_RANKS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.message_mismatches import (
    MessageMismatch,
    arguments_at,
    is_counted,
    part_of,
    stands_in,
)
from hanglab.analyzer.matching.summary import MessageArguments, P2PChannel

#: A rank, and a message of a channel of its own.
_End = tuple[int, P2PChannel, int]


@dataclass(frozen=True)
class Misdirected:
    """A message that met the wrong one, and the one that still waits for it."""

    mismatch: MessageMismatch
    messages: UnmatchedMessages


def find_misdirected(
    mismatches: Sequence[MessageMismatch], merged: MergedSummaries, waits: OpenOperations
) -> list[Misdirected]:
    """Mismatches of which one end alone was meant for somebody else, unless all of it has ended.

    Of ranks that may have been on their way nothing is open.
    """
    found = []
    for mismatch in mismatches[:FULL_RANKS]:
        mine, theirs = mismatch.ends
        if mismatch.shifted:
            ends = frozenset({mine[0], theirs[0]})
            messages = _open_messages(mismatch.ends, mismatch, waits)
            found.append(
                Misdirected(mismatch, UnmatchedMessages(messages, ends, None, shifted=True))
            )
            continue
        pairs = []
        for end, other in ((mine, theirs), (theirs, mine)):
            if _are_apart(end, other[0], mismatch, waits):
                continue
            if (missed := _meant_for(end, other, mismatch, merged)) is not None:
                pairs.append((end, missed))
            elif (lost := _lost_half(end, other, mismatch, merged)) is not None:
                pairs.append((lost, other))
        if len(pairs) == 1:
            (pair,) = pairs
            messages = _open_messages(pair, mismatch, waits)
            if messages or not mismatch.finished:
                ends = frozenset({mine[0], theirs[0], pair[1][0]})
                unmatched = UnmatchedMessages(messages, ends, pair[0][0])
                found.append(Misdirected(mismatch, unmatched))
    return found


def _are_apart(end: _End, peer: int, mismatch: MessageMismatch, waits: OpenOperations) -> bool:
    """True if a rank lacks another message of its peer in the same batch: they are out of step."""
    mine = waits.by_rank.get(end[0], [])
    orders = {p.order for p, w in mine if w.group is mismatch.group and end[1].holds(p, end[2])}
    return any(
        p.order in orders and w.peer == peer in w.absent and not end[1].holds(p, end[2])
        for p, w in mine
    )


def _open_messages(
    ends: Iterable[_End], mismatch: MessageMismatch, waits: OpenOperations
) -> tuple[OpenOperation, ...]:
    return tuple(
        waiting
        for rank, channel, at in ends
        for pending, waiting in waits.by_rank.get(rank, [])
        if waiting.group is mismatch.group and channel.holds(pending, at)
    )


def _meant_for(
    mine: _End, theirs: _End, mismatch: MessageMismatch, merged: MergedSummaries
) -> _End | None:
    """The message that ``mine`` was meant to meet instead of ``theirs``; None without any."""
    rank, channel, position = mine
    peer, other, at = theirs
    own, met = arguments_at(channel, position), arguments_at(other, at)
    if own is None or met is None or not _count(channel, met):
        return None
    if _count(other, own) or _count(channel, own) > 1:
        return None  # The two exchange such ones, too.
    if _gives_as_it_takes(rank, channel, mismatch.group) and not _gives_as_it_takes(
        peer, other, mismatch.group
    ):
        return None  # It did all of an exchange, of which its peer has left a half out.
    for member in mismatch.group.members:
        if member not in (rank, peer):
            lacking = _lacking(member, rank, channel, mismatch.group, merged)
            if lacking is None or arguments_at(*lacking) != own:
                continue
            # Such ones are usual there: one that is new there, too, may be of a longer batch.
            if _count(lacking[0], own) > 1 or {one for _, one in lacking[0].arguments} == {own}:
                return member, *lacking
    return None


def _gives_as_it_takes(rank: int, channel: P2PChannel, group: ResolvedGroup) -> bool:
    """True if a rank has had as many messages of each kind to the other end as from it."""
    part = part_of(rank, group)
    ends = (channel.src, channel.dst)
    given, taken = Counter[MessageArguments](), Counter[MessageArguments]()
    for other in part.channels if part is not None else ():
        for way, counts in ((ends, given), (ends[::-1], taken)):
            if (other.src, other.dst) == way:
                counts.update({one: _count(other, one) for _, one in other.arguments})
    return bool(given) and given == taken


def _lost_half(
    mine: _End, theirs: _End, mismatch: MessageMismatch, merged: MergedSummaries
) -> _End | None:
    """The half that ``theirs`` lacks, posted for one who exchanges nothing else with its rank."""
    rank, channel, _ = mine
    peer, other, at = theirs
    met = arguments_at(other, at)
    if met is None or _count(channel, met):
        return None
    for member in mismatch.group.members:
        if member not in (rank, peer):
            lost = _lacking(rank, member, other, mismatch.group, merged)
            # What has ended may be an old one that a small send's buffer took.
            if lost is not None and lost[1] in lost[0].open and lost[0].posted == 1:
                return (rank, *lost) if arguments_at(*lost) == met else None
    return None


def _count(channel: P2PChannel, arguments: MessageArguments) -> int:
    return sum(count for count, one in channel.arguments if one == arguments)


def _lacking(
    member: int, rank: int, channel: P2PChannel, group: ResolvedGroup, merged: MergedSummaries
) -> tuple[P2PChannel, int] | None:
    """The first message of a member that lacks its half of a rank; None without any."""
    theirs, mine = part_of(member, group), part_of(rank, group)
    if theirs is None or mine is None:
        return None
    place, of_member = group.members.index(rank), group.members.index(member)
    ends = (place, of_member) if channel.sends else (of_member, place)
    halves = [
        one
        for one in mine.channels
        if (one.src, one.dst, one.sends, one.tag) == (*ends, channel.sends, channel.tag)
    ]
    posted = sum(one.posted for one in halves)
    counted = all(is_counted(one, group, merged) for one in (rank, member))
    for one in theirs.channels:
        if (one.src, one.dst, one.sends, one.tag) != (*ends, not channel.sends, channel.tag):
            continue
        if counted:
            return (one, posted) if posted < one.posted else None
        if any(half.open for half in halves) or not one.open:
            return None
        return (one, one.open[0]) if stands_in(merged.ranks[member], one, one.open[0]) else None
    return None
