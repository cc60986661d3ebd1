"""Arrival lag: who enters matched operations last, and what the others lose by it.

Flight Recorder stamps an entry when a rank enters an operation.  Under one
sequence number the last to enter keeps the others waiting.  Clocks of one host
are one clock; offsets between hosts are not corrected here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.dumps.columns import RankDump


@dataclass(frozen=True)
class Arrivals:
    """``lost_ns[rank]``: time that the median peer spent waiting for ``rank``, all told."""

    operations: int
    span_ns: int
    lost_ns: dict[int, int]
    #: How many operations each rank entered last.
    last: dict[int, int]
    #: The longest single wait for each rank.
    longest_ns: dict[int, int]

    def share(self, rank: int) -> float:
        """Share of the observed time that the rank's peers lost to it, again and again.

        Its longest wait is left out: once is no habit.
        """
        longest = self.longest_ns.get(rank, 0)
        span = self.span_ns - longest
        return (self.lost_ns.get(rank, 0) - longest) / span if span > 0 else 0.0


def arrivals(dumps: Mapping[int, RankDump]) -> Arrivals | None:
    """Arrivals over all groups of at least two ranks; None without a common operation."""
    by_group: dict[str, dict[int, dict[int, int]]] = {}
    members: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        entries = dump.entries
        if entries is None:
            continue
        for index, group in enumerate(entries.group_names):
            chosen = (entries.group == index) & ~entries.is_p2p & (entries.created_ns > 0)
            seqs = entries.seq[chosen].tolist()
            times = entries.created_ns[chosen].tolist()
            by_group.setdefault(group.name, {})[rank] = dict(zip(seqs, times, strict=True))
            members.setdefault(group.name, set()).update(dump.members.get(group.name, (rank,)))
    lost: dict[int, int] = dict.fromkeys(dumps, 0)
    last: dict[int, int] = dict.fromkeys(dumps, 0)
    longest = dict.fromkeys(dumps, 0)
    operations = 0
    first_ns, last_ns = 0, 0
    for name, ranks in by_group.items():
        if len(ranks) < 2 or members[name] - set(ranks):
            continue
        common = set.intersection(*(set(times) for times in ranks.values()))
        for seq in common:
            order = sorted((times[seq], rank) for rank, times in ranks.items())
            latest, culprit = order[-1]
            others = float(np.median([time for time, _ in order[:-1]]))
            lost[culprit] += int(latest - others)
            last[culprit] += 1
            longest[culprit] = max(longest[culprit], int(latest - others))
            operations += 1
            first_ns = min(first_ns or order[0][0], order[0][0])
            last_ns = max(last_ns, latest)
    if not operations:
        return None
    return Arrivals(operations, last_ns - first_ns, lost, last, longest)
