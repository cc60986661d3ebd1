"""Activity of a rank at the time when its dump was written."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump

#: A rank that did something so short a time before its dump was written was on its way.
_RECENT_NS = 500_000_000
#: The same where the dump has stacks: torch looks up their symbols after it has read the
#: buffer, which takes up to two seconds, and writes the file then.
_RECENT_WITH_STACKS_NS = 2_000_000_000
#: One that has paused before may pause three times as long, within this.
_LONGER = 3
_LONGEST_NS = 5_000_000_000
#: Clocks of file systems lag by so much.
_COARSE_NS = 1_000_000_000
#: A wait of this share of the timeout is no usual pause.
_TIMED_OUT = 0.9


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
        usual = min(usual, int(float(limits.min()) * 1e6 * _TIMED_OUT))
    recent = _RECENT_WITH_STACKS_NS if bool((entries.stack != ABSENT).any()) else _RECENT_NS
    patience = min(max(_LONGER * usual, recent), _LONGEST_NS)
    return -_COARSE_NS <= quiet < max(usual, patience)
