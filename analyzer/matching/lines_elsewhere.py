"""Two lines of a program that make one call: in another group they met under one number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Int64
from hanglab.analyzer.matching.calls import Difference, Divergence, ProcessGroup
from hanglab.analyzer.matching.sequences import Sequences
from hanglab.analyzer.matching.signatures import SITE, UInt64, argument_difference
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.matching.thresholds import COMPARED_HISTORIES


def label_by_lines_elsewhere(
    divergence: Divergence, by_group: Mapping[ProcessGroup, Sequences]
) -> None:
    """Let calls from two lines be one call with other arguments if they were one in another group.

    Whoever leads has a branch of its own, in each replica.
    """
    if divergence.difference is not Difference.CALL_SITE or divergence.skipped:
        return
    mine = by_group[divergence.group]
    first, *rest = divergence.calls.items()
    sites = {mine.site(mine.code(rank, divergence.seq)) for rank in divergence.calls}
    kinds = {argument_difference(first[1], call) for _, call in rest} - {None}
    if len(sites) != 2 or 0 in sites or not kinds:
        return
    others = (one for group, one in by_group.items() if group != divergence.group)
    if any(_met(one, sites) for one in others):
        divergence.difference = next(kind for kind in Difference if kind in kinds)


def _met(sequences: Sequences, sites: set[int]) -> bool:
    """True if under some number members called the same from those two lines."""
    lines = sorted(sites)
    for x, y in _pairs(sequences):
        same = (x[:, :SITE] == y[:, :SITE]).all(axis=1)
        both = np.sort(np.stack([x[same, SITE], y[same, SITE]], axis=1), axis=1)
        if (both == lines).all(axis=1).any():
            return True
    return False


def _pairs(sequences: Sequences) -> Iterator[tuple[UInt64, UInt64]]:
    """Signatures that two members have under the same numbers."""
    for one, other in combinations(sequences.histories[:COMPARED_HISTORIES], 2):
        _, mine, theirs = one.overlap(other)
        known: Int64 = np.flatnonzero((mine != GAP) & (theirs != GAP))
        yield sequences.table[mine[known]], sequences.table[theirs[known]]
