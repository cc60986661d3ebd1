"""Sends and receives that meet with arguments that differ.

A channel (group, both ends, tag) keeps its order, so the n-th send meets the n-th receive, as long
as both ends are known from their first message on.  Where a ring has lost the first ones, the first
that are open on both sides meet if one of them is what its rank stands in: nothing else keeps it.
Each has to be known for the first that is open: one that has ended before it tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import (
    GroupSummary,
    MessageArguments,
    P2PChannel,
    RankSummary,
)
from hanglab.analyzer.matching.thresholds import AGREEING_MESSAGES, USUAL_SIZE


@dataclass(frozen=True)
class MessageMismatch:
    """The first message of a channel whose ends do not agree."""

    group: ResolvedGroup
    difference: Difference
    sender: int
    receiver: int
    sent: P2PChannel
    taken: P2PChannel
    #: The message's place among those that the sender's ring has of the channel, from 0, and among
    #: those of the receiver's.
    positions: tuple[int, int]
    #: The end that alone differs from all other messages of the channel; None where nothing tells.
    deviating: int | None
    #: It ended all the same.
    finished: bool = False
    #: A message that one end alone has explains it, and all that follow.
    shifted: bool = False

    @property
    def ends(self) -> tuple[tuple[int, P2PChannel, int], tuple[int, P2PChannel, int]]:
        sent, taken = self.positions
        return (self.sender, self.sent, sent), (self.receiver, self.taken, taken)


def find_message_mismatches(
    merged: MergedSummaries, group_table: GroupTable
) -> list[MessageMismatch]:
    """The first mismatch of each channel, as far as it is known what meets there."""
    found = []
    for group in group_table.groups:
        if group.p2p and not (group.doubtful or group.misnamed):
            found += [one for sender in group.members for one in _of(sender, group, merged)]
    return found


def _of(sender: int, group: ResolvedGroup, merged: MergedSummaries) -> Iterator[MessageMismatch]:
    mine = part_of(sender, group)
    for sent in mine.channels if mine is not None else ():
        if not (sent.sends and 0 <= sent.dst < len(group.members)):
            continue
        receiver = group.members[sent.dst]
        theirs = part_of(receiver, group)
        # Receives from any source may have taken some of them.
        if theirs is None or any(c.src == ABSENT and not c.sends for c in theirs.channels):
            continue
        counted = all(is_counted(rank, group, merged) for rank in (sender, receiver))
        for taken in theirs.channels:
            if not taken.sends and (taken.src, taken.tag) == (sent.src, sent.tag):
                ends = group, sender, receiver, sent, taken
                mismatch = _first(*ends, merged) if counted else _first_open(*ends, merged)
                if mismatch is not None:
                    yield mismatch


def part_of(rank: int, group: ResolvedGroup) -> GroupSummary | None:
    """The part of a rank's dump that is of a group; None without any."""
    progress = group.progress.get(rank)
    return progress.part if progress is not None else None


def is_counted(rank: int, group: ResolvedGroup, merged: MergedSummaries) -> bool:
    """True if all messages of a rank in a group are known."""
    part, summary = part_of(rank, group), merged.ranks.get(rank)
    return part is not None and summary is not None and (part.counted or summary.whole)


def _first_open(
    group: ResolvedGroup,
    sender: int,
    receiver: int,
    sent: P2PChannel,
    taken: P2PChannel,
    merged: MergedSummaries,
) -> MessageMismatch | None:
    """The mismatch of the first open message of a channel that cannot be counted."""
    if not taken.open:
        return _of_ended(group, sender, receiver, sent, taken, merged)
    if not sent.open:
        return _first_of_ended_sends(group, sender, receiver, sent, taken, merged)
    positions = sent.open[0], taken.open[0]
    pair = [arguments_at(one, at) for one, at in zip((sent, taken), positions, strict=True)]
    if pair[0] is None or pair[1] is None:
        return None
    difference = _difference(pair[0], pair[1])
    if difference is None:
        return None
    ends = tuple(zip((sender, receiver), (sent, taken), positions, strict=True))
    if not all(_is_first_open(*end, group, merged) for end in ends):
        return None
    if not any(
        stands_in(merged.ranks[rank], channel, at) and not _may_have_met(rank, channel, at, merged)
        for rank, channel, at in ends
    ):
        return None
    return MessageMismatch(group, difference, sender, receiver, sent, taken, positions, None)


def _is_first_open(
    rank: int, channel: P2PChannel, at: int, group: ResolvedGroup, merged: MergedSummaries
) -> bool:
    """False if older messages of the channel, which the ring has dropped, may be open as well.

    The messages between two ranks end in order, whichever way they go.
    """
    part = part_of(rank, group)
    assert part is not None
    return (
        at > 0
        or merged.ranks[rank].undropped
        or (part.active_only and not merged.ranks[rank].history_truncated)
        or any(c.done and {c.src, c.dst} == {channel.src, channel.dst} for c in part.channels)
    )


def _first_of_ended_sends(
    group: ResolvedGroup,
    sender: int,
    receiver: int,
    sent: P2PChannel,
    taken: P2PChannel,
    merged: MergedSummaries,
) -> MessageMismatch | None:
    """The mismatch of the first open receive where sends end without it.

    Only if the send that meets it, or the receive, is like none of the others.  These meet as
    counted from the last ones; or, where more were sent than taken, even with all that the
    receiver's ring has dropped, in any way that the numbers of what was dropped allow.
    """
    at = taken.open[0]
    found = _single(sent, taken) if stands_in(merged.ranks[receiver], taken, at) else None
    if found is None:
        return None
    sends, receives, odd, difference = found
    last = sent.posted - taken.posted + at
    parts = part_of(sender, group), part_of(receiver, group)
    before, after = (ABSENT if part is None else part.unseen for part in parts)
    certain = ABSENT not in (before, after) and at + after < sent.posted
    if odd not in sends and not (certain or _is_past_messages(merged.ranks[sender])):
        return None  # What it takes may have yet to be sent.
    fitting = {last}
    if certain:
        fitting.update(range(max(0, at - before), at + after + 1))
    here = sends.index(odd) if odd in sends else max(0, last)
    if here not in fitting or (odd in receives and receives[at] != odd):
        return None
    deviating = sender if odd in sends else receiver
    return MessageMismatch(group, difference, sender, receiver, sent, taken, (here, at), deviating)


def _of_ended(
    group: ResolvedGroup,
    sender: int,
    receiver: int,
    sent: P2PChannel,
    taken: P2PChannel,
    merged: MergedSummaries,
) -> MessageMismatch | None:
    """The mismatch of a message that has ended, as all of its two ranks have, by the last ones.

    Only if its send, or its receive, is like none of the others, and both are still known.
    """
    if sent.open or any(merged.ranks[rank].pending for rank in (sender, receiver)):
        return None
    found = _single(sent, taken)
    if found is None:
        return None
    sends, receives, odd, difference = found
    more = len(sends) - len(receives)
    here = sends.index(odd) if odd in sends else receives.index(odd) + more
    if not 0 <= here < len(sends) or here < more:
        return None  # The ring of one of them has lost what the other's met.
    deviating = sender if odd in sends else receiver
    positions = here, here - more
    return MessageMismatch(
        group, difference, sender, receiver, sent, taken, positions, deviating, finished=True
    )


def _single(
    sent: P2PChannel, taken: P2PChannel
) -> tuple[list[MessageArguments], list[MessageArguments], MessageArguments, Difference] | None:
    """Arguments of sends and of receives, the one that is like none of the others, and how it is.

    None where all are alike, or several are not, or not all are known.
    """
    sends, receives = list(_each(sent.arguments)), list(_each(taken.arguments))
    (usual, many), *others = Counter([*sends, *receives]).most_common()
    if (
        (len(sends), len(receives)) != (sent.posted, taken.posted)
        or many < USUAL_SIZE
        or len(others) != 1
    ):
        return None
    odd, count = others[0]
    difference = _difference(*((odd, usual) if odd in sends else (usual, odd)))
    return None if count != 1 or difference is None else (sends, receives, odd, difference)


def stands_in(summary: RankSummary, channel: P2PChannel, position: int) -> bool:
    """True if a message is the oldest that its rank has not finished.

    Where a ring that has dropped entries begins with it, older ones may be among these.
    """
    if summary.history_truncated:
        return False
    oldest = min((pending.order for pending in summary.pending), default=ABSENT)
    if oldest == 0 and not (summary.whole or any(part.active_only for part in summary.parts)):
        return False
    return any(
        channel.holds(pending, position) and pending.order == oldest for pending in summary.pending
    )


def _may_have_met(rank: int, channel: P2PChannel, position: int, merged: MergedSummaries) -> bool:
    """True if a message is of a batch with others: it waits for these to end, met or not."""
    pending = merged.ranks[rank].pending
    orders = {one.order for one in pending if channel.holds(one, position)}
    batch = [one for one in pending if one.order in orders]
    return len({frozenset((one.src, one.dst)) for one in batch}) > 1


def _first(
    group: ResolvedGroup,
    sender: int,
    receiver: int,
    sent: P2PChannel,
    taken: P2PChannel,
    merged: MergedSummaries,
) -> MessageMismatch | None:
    if sent.arguments == taken.arguments:
        return None
    pairs = list(zip(_each(sent.arguments), _each(taken.arguments), strict=False))
    different = [(at, kind) for at, (a, b) in enumerate(pairs) if (kind := _difference(a, b))]
    if not different:
        return None
    position, difference = different[0]
    sends, receives = [*_each(sent.arguments)], [*_each(taken.arguments)]
    positions = position, position
    if _is_shifted(sends, receives, position):
        if position not in {*sent.open, *taken.open}:
            return None
        return MessageMismatch(
            group, difference, sender, receiver, sent, taken, positions, None, shifted=True
        )
    deviating = None
    usual = {one for at, (one, _) in enumerate(pairs) if at != position}
    as_many = len(sends) == len(receives) and all(
        _is_through(merged.ranks[rank]) for rank in (sender, receiver)
    )
    later = len(pairs) - position - 1
    # One other message may be of another size by right.
    fixed = len(usual) == 1 and 2 * (len(pairs) - 1) >= USUAL_SIZE
    if len(different) == 1 and fixed and as_many and later >= AGREEING_MESSAGES:
        # They agreed again afterwards, and neither has left a message out.
        off = [rank for rank, one in zip((sender, receiver), pairs[position], strict=True)
               if one not in usual]  # fmt: skip
        deviating = off[0] if len(off) == 1 else None
    still_open = [rank for rank, one in ((sender, sent), (receiver, taken)) if position in one.open]
    # A rank that was dumped on its way may have finished what its peer has.
    finished = len(still_open) < 2 and not any(merged.ranks[r].informative for r in still_open)
    return MessageMismatch(
        group, difference, sender, receiver, sent, taken, positions, deviating, finished
    )


def _is_through(summary: RankSummary) -> bool:
    """True if a rank has come to a collective behind its messages, or has ended all that it did.

    One that was dumped on its way may be anywhere.
    """
    return _is_past_messages(summary) if summary.pending else summary.informative


def _is_past_messages(summary: RankSummary) -> bool:
    """True if a rank waits in a collective behind its messages."""
    last = max((one.order for one in summary.pending if one.seq is None), default=ABSENT)
    return any(one.seq is not None and one.order > last for one in summary.pending)


def _is_shifted(
    sends: Sequence[MessageArguments], receives: Sequence[MessageArguments], at: int
) -> bool:
    """True if a message of the program that one end alone has explains all that differs from it on.

    Whoever gives a wrong size has it in no other message.
    """
    fewer, more = sorted((sends, receives), key=len)
    if len(fewer) == len(more) or len(fewer) == at or more.count(more[at]) < 2:
        return False
    behind = zip(fewer[at:], more[at + 1 :], strict=False)
    return all(_difference(one, other) is None for one, other in behind)


def arguments_at(channel: P2PChannel, position: int) -> MessageArguments | None:
    """Arguments of one message of a channel; None where they are not known."""
    return next(islice(_each(channel.arguments), position, None), None)


def _each(runs: Sequence[tuple[int, MessageArguments]]) -> Iterator[MessageArguments]:
    return chain.from_iterable(repeat(one, count) for count, one in runs)


def _difference(sent: MessageArguments, taken: MessageArguments) -> Difference | None:
    if sent == taken or not (sent.dtype and taken.dtype):
        return None
    if sent.dtype == taken.dtype:
        return Difference.SIZE
    if sent.numel == taken.numel:
        return Difference.DTYPE
    # Bytes may be sent as one type and taken as another.
    return None
