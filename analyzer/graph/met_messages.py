"""Messages of gloo that both of their ends have posted, whether or not anybody waits for them.

No buffer tells which of gloo's messages have ended: one is over once both halves have been posted,
which meet by group, peers and tag, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.summary import GroupSummary, P2PChannel


def met_messages(rank: int, groups: Sequence[ResolvedGroup], lookup: CallLookup) -> Iterator[int]:
    """Indices of the entries of a rank's messages on gloo that have their other half.

    Of groups of which both ends know all messages from the first on.
    """
    entries = lookup.entries(rank)
    for group in groups:
        part = _counted(group, rank)
        if entries is None or part is None or group.doubtful:
            continue
        for channel in part.channels:
            place = channel.dst if channel.sends else channel.src
            if not 0 <= place < len(group.members) or not channel.open:
                continue
            peer = _counted(group, group.members[place])
            posted = 0 if peer is None else _posted(peer, channel)
            met = [at for at in channel.open if at < posted]
            if met:
                rows = [
                    row
                    for row in np.flatnonzero(entries.in_group(part.name)).tolist()
                    if (one := entries.operation_at(row)).spec.sends == channel.sends
                    and one.spec.half
                    and (one.src, one.dst, one.tag) == (channel.src, channel.dst, channel.tag)
                ]
                yield from (rows[at] for at in met if at < len(rows))


def _counted(group: ResolvedGroup, rank: int) -> GroupSummary | None:
    progress = group.progress.get(rank)
    part = progress.part if progress is not None else None
    return part if part is not None and part.gloo and part.counted else None


def _posted(part: GroupSummary, channel: P2PChannel) -> int:
    """Halves of the other end; 0 where it takes from anybody."""
    if any(one.src < 0 and not one.sends for one in part.channels):
        return 0
    return sum(
        one.posted
        for one in part.channels
        if one.sends != channel.sends
        and (one.src, one.dst, one.tag) == (channel.src, channel.dst, channel.tag)
    )
