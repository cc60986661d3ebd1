"""Pauses between the operations of a rank: how long the next one may be."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries, RankDump, State
from hanglab.analyzer.flight_recorder.moments import last_event_ns
from hanglab.analyzer.worlds.thresholds import (
    CLOCK_UNSET_NS,
    COMPARED_OPERATIONS,
    FIRST_PAUSE_NS,
    KNOWN_PAUSES,
    LATE_FACTOR,
    ONE_CLOCK_NS,
    THREADS_APART_NS,
    TIMED_OUT_SHARE,
    VARIATION_FACTOR,
)


def in_usual_pause(dump: RankDump, peers: Iterable[RankDump]) -> bool:
    """True if a rank was last seen so little before its peers that it need not be late.

    Asked of one whose file has no time that tells when it was dumped: the dumps of a job that
    moves, taken milliseconds apart, look like this.  Peers on other clocks say nothing.
    """
    entries = dump.entries
    if entries is None or not len(entries):
        counted = any(status.enqueued for status in dump.status.values())
        return not counted and _have_just_begun(peers)
    expected = last_event_ns(entries) + _expected_within_ns(entries)
    seen = [
        last_event_ns(peer.entries)
        for peer in peers
        if peer.entries is not None and _one_clock(entries, peer.entries)
    ]
    return bool(seen) and max(seen) < expected


def _have_just_begun(peers: Iterable[RankDump]) -> bool:
    """True if all that the peers did lies within what a rank takes to its first operation.

    Each by its own clock: where none did anything for longer, one that did nothing is not late.
    """
    seen = [peer.entries for peer in peers if peer.entries is not None and len(peer.entries)]
    return bool(seen) and all(
        int(entries.record_id[0]) == 0
        and last_event_ns(entries) - int(entries.created_ns[0]) < FIRST_PAUSE_NS
        for entries in seen
    )


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
