"""Sends and receives that would meet but for their tag or their group.

Each of two ranks waits for the other's half, and has issued one that is no other half of it; so is
a send that has ended without its receiver, and is never taken.  The one that left the channels that
it has used so far is wrong; tags that count steps are one channel.  Where both have used theirs
before, that one is wrong whose tags come in rounds and now do not, while the tags of the other do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Operation
from hanglab.analyzer.graph.thresholds import USUAL_CHANNEL
from hanglab.analyzer.graph.waits import OpenOperation
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.group_history import continuation
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of


@dataclass(frozen=True)
class MismatchedHalves:
    """``ranks`` wait in a send and a receive that miss each other, the sender first."""

    ranks: tuple[int, int]
    #: The one of them that left its usual channel; None where both or neither did.
    deviating: int | None
    #: Index of the sender's entry, where its send has ended.
    ended: int | None = None


def find_mismatched_halves(
    places: Mapping[int, OpenOperation], groups: Sequence[ResolvedGroup], lookup: CallLookup
) -> MismatchedHalves | None:
    """The first two of those in ``places`` whose messages miss each other; None without any."""
    for sender, sent in places.items():
        if sent.seq is not None or not op_of(sent.op).sends:
            continue
        receiver = sent.peer
        taken = places.get(receiver) if receiver is not None else None
        if receiver is None or taken is None or receiver not in sent.absent:
            continue
        if taken.seq is not None or op_of(taken.op).sends or sender not in taken.absent:
            continue
        if taken.peer not in (sender, None):
            continue
        ends = {sender: sent.waiters[sender], receiver: taken.waiters[receiver]}
        if taken.group is sent.group and ends[sender].tag == ends[receiver].tag:
            continue
        off = [
            rank for rank, pending in ends.items()
            if _is_new(rank, pending, places[rank].group, groups, lookup)
        ]  # fmt: skip
        if not off and taken.group is sent.group:
            off = _out_of_round(ends, lookup, sent.group.group.name)
        return MismatchedHalves((sender, receiver), off[0] if len(off) == 1 else None)
    return None


def find_untaken_send(
    places: Mapping[int, OpenOperation],
    merged: MergedSummaries,
    groups: Sequence[ResolvedGroup],
    lookup: CallLookup,
) -> MismatchedHalves | None:
    """A receive of those in ``places``, and a send of its peer that ended on another channel.

    Both ranks have to be known from their first message on.
    """
    for receiver, taken in places.items():
        sender, pending = taken.peer, taken.waiters[receiver]
        if taken.seq is not None or op_of(taken.op).sends or not taken.certain:
            continue
        held_up = {*taken.absent, *taken.behind}
        if sender is None or sender not in held_up or taken.group.doubtful:
            continue
        if not all(_is_whole(rank, taken.group, merged) for rank in (sender, receiver)):
            continue
        for group in groups:
            # Gloo takes what is sent by its tag, in whichever order.
            part = progress.part if (progress := group.progress.get(sender)) else None
            tagged = part is not None and part.gloo and group is taken.group
            sent = first_untaken_send(group, sender, receiver, lookup, tagged=tagged)
            if sent is None or (group is taken.group and sent.tag == pending.tag):
                continue
            if sender not in taken.absent and sent.position:
                continue  # It has sent the other half, and what is taken late may be legal.
            halves = (sender, sent, group), (receiver, pending, taken.group)
            off = [
                rank for rank, one, at in halves
                if _is_new(rank, one, at, groups, lookup)
            ]  # fmt: skip
            deviating = off[0] if len(off) == 1 else None
            return MismatchedHalves((sender, receiver), deviating, sent.index)
    return None


def _is_whole(rank: int, group: ResolvedGroup, merged: MergedSummaries) -> bool:
    """True if a rank's messages are known from the first on, those of gloo by the boundary."""
    part = progress.part if (progress := group.progress.get(rank)) else None
    return merged.ranks[rank].whole or (part is not None and part.gloo and part.counted)


def first_untaken_send(
    group: ResolvedGroup, sender: int, receiver: int, lookup: CallLookup, *, tagged: bool = False
) -> Pending | None:
    """The first send of a group that has ended, and that its receiver has no receive for.

    With ``tagged``, where messages meet by their tags alone, also one that need not have ended.
    """
    members, ends = group.members, (sender, receiver)
    if group.doubtful or group.misnamed or not set(ends) <= set(members):
        return None
    parts = [progress.part if (progress := group.progress.get(r)) else None for r in ends]
    sent_part, taken_part = parts
    entries = lookup.entries(sender)
    if sent_part is None or entries is None:
        return None
    if any(p is not None and p.gloo for p in parts) and not tagged:
        return None
    taken = taken_part.channels if taken_part is not None else []
    if any(not channel.sends and channel.src == ABSENT for channel in taken):
        return None  # Whom it took from is not known.
    src, dst = (members.index(rank) for rank in ends)
    for channel in sent_part.channels:
        if not channel.sends or channel.dst != dst:
            continue
        posted = sum(
            one.posted
            for one in taken
            if not one.sends and (one.src, one.tag) == (src, channel.tag)
        )
        if posted < channel.posted and (tagged or posted not in channel.open):
            rows = [
                row
                for row in np.flatnonzero(entries.in_group(sent_part.name)).tolist()
                if (one := entries.operation_at(row)).spec.sends
                and (one.dst, one.tag) == (dst, channel.tag)
            ]
            row = rows[posted]
            op = entries.operation_at(row).op
            return Pending(row, row, ABSENT, None, op, src, dst, channel.tag, posted)
    return None


def _is_new(
    rank: int,
    pending: Pending,
    group: ResolvedGroup,
    groups: Sequence[ResolvedGroup],
    lookup: CallLookup,
) -> bool:
    """True if a rank has used other channels again and again, but never that of ``pending``."""
    entries = lookup.entries(rank)
    if entries is None or pending.index < 0:
        return False
    name = group.group.name
    members = {one.group.name: one.members for one in groups if rank in one.members}
    members[name] = group.members
    earlier = [
        (entries.group_at(row), entries.operation_at(row))
        for row in np.flatnonzero(entries.is_p2p[: pending.index]).tolist()
    ]
    if len(earlier) < USUAL_CHANNEL:
        return False
    mine = entries.operation_at(pending.index)

    def peer_of(at: str, one: Operation) -> int | None:
        known = members.get(at, ())
        return known[one.peer] if 0 <= one.peer < len(known) else None

    peer = peer_of(name, mine)
    with_peer = peer is not None and any(
        one.spec.half == mine.spec.half and peer_of(at, one) == peer for at, one in earlier
    )
    if not with_peer and any((at, one.tag) == (name, pending.tag) for at, one in earlier):
        return False  # Its first one with that peer, as it has had them with others.
    tags = list(_tags(entries, pending, name))
    return pending.tag not in tags and not _continues(tags, pending.tag)


def _out_of_round(ends: Mapping[int, Pending], lookup: CallLookup, group: str) -> list[int]:
    """The rank whose tag is not the next of its rounds; [] unless the other's is."""
    out = []
    for rank, pending in ends.items():
        entries = lookup.entries(rank)
        if entries is None or pending.index < 0:
            return []
        due = continuation(list(_tags(entries, pending, group)), 1)
        if not due:
            return []
        if due != [pending.tag]:
            out.append(rank)
    return out


def _tags(entries: Entries, pending: Pending, group: str) -> Iterator[int]:
    """Tags of a rank's earlier messages the same way, with the same peer, in the same group."""
    earlier = (entries.in_group(group) & entries.is_p2p)[: pending.index]
    for row in np.flatnonzero(earlier).tolist():
        one = entries.operation_at(row)
        if (one.op, one.src, one.dst) == (pending.op, pending.src, pending.dst):
            yield one.tag


def _continues(tags: list[int], tag: int) -> bool:
    """True if the tags are a count, and ``tag`` is the next one."""
    known = [*tags[-USUAL_CHANNEL:], tag]
    steps = {after - before for before, after in pairwise(known)}
    return len(known) == USUAL_CHANNEL + 1 and len(steps) == 1
