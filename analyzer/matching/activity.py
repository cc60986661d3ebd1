"""Activity of a rank at the time when its dump was written."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump
from hanglab.analyzer.matching.thresholds import (
    FILE_CLOCK_LAG_NS,
    LONGEST_PAUSE_NS,
    PAUSE_FACTOR,
    RECENT_NS,
    RECENT_WITH_STACKS_NS,
    TIMED_OUT_SHARE,
)


def was_active(dump: RankDump) -> bool:
    """True if a rank was in one of its usual pauses, or in none, when its dump was written.

    Both times are of the rank's own host.  A copy that was written later only
    makes the pause longer than it was.
    """
    entries = dump.entries
    if entries is None or dump.written_ns == ABSENT:
        return False
    created = entries.created_ns[entries.created_ns > 0]
    if not len(created):
        return False
    last = max(int(column.max()) for column in (created, entries.started_ns, entries.completed_ns))
    quiet = dump.written_ns - last
    usual = int(np.diff(created).max()) if len(created) > 1 else 0
    limits = entries.timeout_ms[entries.timeout_ms > 0]
    if len(limits):
        usual = min(usual, int(float(limits.min()) * 1e6 * TIMED_OUT_SHARE))
    recent = RECENT_WITH_STACKS_NS if bool((entries.stack != ABSENT).any()) else RECENT_NS
    patience = min(max(PAUSE_FACTOR * usual, recent), LONGEST_PAUSE_NS)
    return -FILE_CLOCK_LAG_NS <= quiet < max(usual, patience)
