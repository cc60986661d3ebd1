"""Sends and receives that would meet but for their tag or their group.

Each of two ranks waits for the other's half, and has issued one that is no other half of it.  The
one that left the channels that it has used so far is wrong; tags that count steps are one channel.
Where both have used theirs before, that one is wrong whose tags come in rounds and now do not,
while the tags of the other do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.graph.thresholds import USUAL_CHANNEL
from hanglab.analyzer.graph.waits import OpenOperation
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.group_history import continuation
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of


@dataclass(frozen=True)
class MismatchedHalves:
    """``ranks`` wait in a send and a receive that miss each other, the sender first."""

    ranks: tuple[int, int]
    #: The one of them that left its usual channel; None where both or neither did.
    deviating: int | None


def find_mismatched_halves(
    places: Mapping[int, OpenOperation], lookup: CallLookup
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
            rank
            for rank, pending in ends.items()
            if _is_new(lookup.entries(rank), pending, places[rank].group.group.name)
        ]
        if not off and taken.group is sent.group:
            off = _out_of_round(ends, lookup, sent.group.group.name)
        return MismatchedHalves((sender, receiver), off[0] if len(off) == 1 else None)
    return None


def _is_new(entries: Entries | None, pending: Pending, group: str) -> bool:
    """True if a rank has used other channels again and again, but never that of ``pending``."""
    if entries is None or pending.index < 0:
        return False
    earlier = entries.is_p2p[: pending.index]
    if int(earlier.sum()) < USUAL_CHANNEL:
        return False
    tags = list(_tags(entries, pending, group))
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
