"""Sends and receives that meet with arguments that differ.

A channel (group, both ends, tag) keeps its order, so the n-th send meets the n-th receive, as long
as both ends are known from their first message on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import GroupSummary, MessageArguments, P2PChannel
from hanglab.analyzer.matching.thresholds import AGREEING_MESSAGES


@dataclass(frozen=True)
class MessageMismatch:
    """The first message of a channel whose ends do not agree."""

    group: ResolvedGroup
    difference: Difference
    sender: int
    receiver: int
    sent: P2PChannel
    taken: P2PChannel
    #: The message's place in the channel, from 0.
    position: int
    #: The end that alone differs from all other messages of the channel; None where nothing tells.
    deviating: int | None

    @property
    def ends(self) -> tuple[tuple[int, P2PChannel], tuple[int, P2PChannel]]:
        return (self.sender, self.sent), (self.receiver, self.taken)

    @property
    def finished(self) -> bool:
        """True where both ends finished it all the same."""
        return self.position not in self.sent.open and self.position not in self.taken.open


def find_message_mismatches(
    merged: MergedSummaries, group_table: GroupTable
) -> list[MessageMismatch]:
    """The first mismatch of each channel that is counted on both ends."""
    found = []
    for group in group_table.groups:
        if group.p2p and not (group.doubtful or group.misnamed):
            found += [one for sender in group.members for one in _of(sender, group, merged)]
    return found


def _of(sender: int, group: ResolvedGroup, merged: MergedSummaries) -> Iterator[MessageMismatch]:
    mine = _counted(sender, group, merged)
    for sent in mine.channels if mine is not None else ():
        if not (sent.sends and 0 <= sent.dst < len(group.members)):
            continue
        receiver = group.members[sent.dst]
        theirs = _counted(receiver, group, merged)
        # Receives from any source may have taken some of them.
        if theirs is None or any(c.src == ABSENT and not c.sends for c in theirs.channels):
            continue
        for taken in theirs.channels:
            if not taken.sends and (taken.src, taken.tag) == (sent.src, sent.tag):
                mismatch = _first(group, sender, receiver, sent, taken)
                if mismatch is not None:
                    yield mismatch


def _counted(rank: int, group: ResolvedGroup, merged: MergedSummaries) -> GroupSummary | None:
    progress, summary = group.progress.get(rank), merged.ranks.get(rank)
    part = progress.part if progress is not None else None
    if part is None or summary is None or not (part.counted or summary.whole):
        return None
    return part


def _first(
    group: ResolvedGroup, sender: int, receiver: int, sent: P2PChannel, taken: P2PChannel
) -> MessageMismatch | None:
    if sent.arguments == taken.arguments:
        return None
    pairs = list(zip(_each(sent.arguments), _each(taken.arguments), strict=False))
    different = [(at, kind) for at, (a, b) in enumerate(pairs) if (kind := _difference(a, b))]
    if not different:
        return None
    position, difference = different[0]
    deviating = None
    usual = {one for at, (one, _) in enumerate(pairs) if at != position}
    later = len(pairs) - position - 1
    if len(different) == 1 and len(usual) == 1 and later >= AGREEING_MESSAGES:
        # They agreed again afterwards: neither left a message out.
        off = [rank for rank, one in zip((sender, receiver), pairs[position], strict=True)
               if one not in usual]  # fmt: skip
        deviating = off[0] if len(off) == 1 else None
    return MessageMismatch(group, difference, sender, receiver, sent, taken, position, deviating)


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
