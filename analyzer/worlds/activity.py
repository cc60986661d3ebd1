"""Activity of a rank at the time when its dump was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump, State
from hanglab.analyzer.flight_recorder.moments import last_event_ns
from hanglab.analyzer.worlds.thresholds import (
    CLOCK_UNSET_NS,
    COMPARED_OPERATIONS,
    COPIED_LATER_NS,
    FILE_CLOCK_LAG_NS,
    FIRST_PAUSE_NS,
    KNOWN_PAUSES,
    LATE_FACTOR,
    LONGEST_IDLE_NS,
    LONGEST_PAUSE_NS,
    ONE_CLOCK_NS,
    PAUSE_FACTOR,
    RECENT_NS,
    RECENT_WITH_STACKS_NS,
    THREADS_APART_NS,
    TIMED_OUT_SHARE,
    VARIATION_FACTOR,
)


@dataclass(frozen=True)
class Activity:
    """One rank at the moment of its dump, by its own clock; ABSENT where nothing tells."""

    #: The rank was in one of its usual pauses, or in none, when its dump was written.
    moving: bool = False
    #: Nanoseconds from its last event to the time of its file, where that may be the dump's.
    quiet_ns: int = ABSENT
    #: The longest pause between two of its operations.
    pause_ns: int = 0
    #: Until when its dump is sure to hold all that it did.
    known_until_ns: int = ABSENT
    #: When its dump was written, where that is known.
    written_ns: int = ABSENT
    #: Its file has the time of a copy, which tells nothing of when it was dumped.
    copied: bool = False

    @property
    def idle(self) -> bool:
        """True if it has done nothing for longer than one can say that a sound job pauses."""
        return self.quiet_ns >= max(LONGEST_IDLE_NS, self.pause_ns)


def activity_of(dump: RankDump) -> Activity:
    """Both times are of the rank's own host; a copy's is later than the dump's, or absurd."""
    entries = dump.entries
    stacks = entries is not None and bool((entries.stack != ABSENT).any())
    recent = RECENT_WITH_STACKS_NS if stacks else RECENT_NS
    known = dump.written_ns - recent if dump.written_ns != ABSENT else ABSENT
    created = entries.created_ns[entries.created_ns > 0] if entries is not None else ()
    if entries is None or not len(created):
        return Activity(known_until_ns=known)
    longest = int(np.diff(created).max()) if len(created) > 1 else 0
    quiet = dump.written_ns - last_event_ns(entries)
    if dump.written_ns == ABSENT or not -FILE_CLOCK_LAG_NS <= quiet <= COPIED_LATER_NS:
        dated = dump.written_ns != ABSENT and last_event_ns(entries) > CLOCK_UNSET_NS
        copied = dated and quiet > COPIED_LATER_NS
        return Activity(pause_ns=longest, copied=copied)
    usual = _within_timeouts(longest, entries)
    patience = min(max(PAUSE_FACTOR * usual, recent), LONGEST_PAUSE_NS)
    return Activity(
        quiet < max(usual, patience), max(quiet, 0), longest, known, written_ns=dump.written_ns
    )


def in_usual_pause(dump: RankDump, peers: Iterable[RankDump]) -> bool:
    """True if a rank was last seen so little before its peers that it need not be late.

    Asked of one whose file has no time that tells when it was dumped: the dumps of a job that
    moves, taken milliseconds apart, look like this.  Peers on other clocks say nothing.
    """
    entries = dump.entries
    if entries is None or activity_of(dump).quiet_ns != ABSENT:
        return False
    expected = last_event_ns(entries) + _expected_within_ns(entries)
    seen = [
        last_event_ns(peer.entries)
        for peer in peers
        if peer.entries is not None and _one_clock(entries, peer.entries)
    ]
    return bool(seen) and max(seen) < expected


def _within_timeouts(pause_ns: int, entries: Entries) -> int:
    limits = entries.timeout_ms[entries.timeout_ms > 0]
    if not len(limits):
        return pause_ns
    return min(pause_ns, int(float(limits.min()) * 1e6 * TIMED_OUT_SHARE))


def _expected_within_ns(entries: Entries) -> int:
    """Time after its last event by which a rank is late if it has done nothing.

    By the pauses between operations in a row, the longest and how much they vary; 0 where its
    clock does not work, and in a dump of open operations alone, which shows a queue and no pause.
    """
    timed = entries.created_ns > CLOCK_UNSET_NS
    finished = entries.retired | (entries.state == State.COMPLETED)
    if not timed.any() or not (finished.any() or int(entries.record_id[0]) == 0):
        return 0
    adjacent = (np.diff(entries.record_id) == 1) & timed[1:] & timed[:-1]
    pauses = np.diff(entries.created_ns)[adjacent]
    if len(pauses) < KNOWN_PAUSES:
        return FIRST_PAUSE_NS
    if int(pauses.min()) < -THREADS_APART_NS:
        return 0
    longest = _within_timeouts(int(pauses.max()), entries)
    return int(LATE_FACTOR * longest) + VARIATION_FACTOR * max(0, longest - int(pauses.min()))


def _one_clock(one: Entries, other: Entries) -> bool:
    """True if two ranks entered what both took part in at times that are nearly the same.

    Where they share nothing, their last events tell.
    """
    names = {group.name: index for index, group in enumerate(other.group_names)}
    for index, group in enumerate(one.group_names):
        if group.name not in names:
            continue
        mine, theirs = _times(one, index), _times(other, names[group.name])
        shared = sorted(mine.keys() & theirs.keys())[-COMPARED_OPERATIONS:]
        if shared:
            apart = sorted(abs(mine[seq] - theirs[seq]) for seq in shared)
            return apart[len(apart) // 2] <= ONE_CLOCK_NS
    return abs(last_event_ns(one) - last_event_ns(other)) <= ONE_CLOCK_NS


def _times(entries: Entries, group: int) -> dict[int, int]:
    rows = (entries.group == group) & ~entries.is_p2p & (entries.created_ns > 0)
    return dict(zip(entries.seq[rows].tolist(), entries.created_ns[rows].tolist(), strict=True))
