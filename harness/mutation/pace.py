"""Share of a job's time that a fault costs, against that by which ranks differ without any."""

from __future__ import annotations

import struct
from pathlib import Path

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.assembly import gather_worlds

#: Seconds that the fault took, and the moments when it began to and when it had.
COST = struct.Struct("=ddd")


def cost_share(kept: Path) -> float | None:
    """The share of its rank's time that a fault took, from its first strike to its last.

    None where the rank kept nothing, as of a fault that does not only cost time.
    """
    try:
        seconds, began, ended = COST.unpack(kept.read_bytes()[: COST.size])
    except (OSError, struct.error):
        return None
    return seconds / (ended - began) if ended > began else None


def chance_share(case: Path) -> float:
    """The largest share of the time by which a rank of a job took longer than its peers.

    Of the original that is chance: a fault that costs no more cannot be told from it.  0 where
    the Case does not tell.
    """
    try:
        found = arrivals(gather_worlds(case)[0])
    except InputError:
        return 0.0
    lateness = found.lateness.values() if found is not None else ()
    return max([0.0, *(late.excess_share for late in lateness)])


__all__ = ["COST", "chance_share", "cost_share"]
