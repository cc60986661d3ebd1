"""Activity of a rank at the time when its dump was written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump, State
from hanglab.analyzer.flight_recorder.moments import last_event_ns
from hanglab.analyzer.worlds.thresholds import (
    CLOCK_UNSET_NS,
    COPIED_LATER_NS,
    COPIED_LEAST_NS,
    COPIED_TIMEOUTS,
    FILE_CLOCK_LAG_NS,
    LATE_FACTOR,
    LONGEST_IDLE_NS,
    LONGEST_PAUSE_NS,
    PAUSE_FACTOR,
    RECENT_NS,
    RECENT_WITH_STACKS_NS,
    TIMED_OUT_SHARE,
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
    #: Its file is so much younger than its last event that torch would have ended the job by then.
    outdated: bool = False
    #: Time of its last event, and the shortest timeout of its operations.
    last_ns: int = ABSENT
    timeout_ns: int = ABSENT
    #: Its dump tells that the watchdog has retired something.
    retires: bool = False
    #: Something has ended that the watchdog has yet to see.
    awaits_watchdog: bool = False

    @property
    def bare(self) -> bool:
        """True if nothing that it did is on record with its time, though its file has one."""
        return self.last_ns == ABSENT != self.written_ns

    def short_pause_s(self, awaited_ns: int = ABSENT) -> float | None:
        """Seconds since its last event, where a host may still be at work; None if that is long.

        Of a rank of which nothing is on record, those since when it is awaited.
        """
        quiet = awaited_ns if self.bare else self.quiet_ns
        timed_out = self.timeout_ns != ABSENT and quiet >= TIMED_OUT_SHARE * self.timeout_ns
        short = ABSENT != quiet < LONGEST_IDLE_NS and not timed_out
        return quiet / 1e9 if short else None

    @property
    def idle(self) -> bool:
        """True if it has done nothing for longer than one can say that a sound job pauses."""
        return self.quiet_ns >= max(LONGEST_IDLE_NS, self.pause_ns)


def activity_of(dump: RankDump) -> Activity:
    """Both times are of the rank's own host; a copy's is days from the dump's."""
    entries = dump.entries
    stacks = entries is not None and bool((entries.stack != ABSENT).any())
    recent = RECENT_WITH_STACKS_NS if stacks else RECENT_NS
    known = dump.written_ns - recent if dump.written_ns != ABSENT else ABSENT
    created = entries.created_ns[entries.created_ns > 0] if entries is not None else ()
    if entries is None or not len(created):
        return Activity(known_until_ns=known, written_ns=dump.written_ns)
    last = last_event_ns(entries)
    longest = int(np.diff(created).max()) if len(created) > 1 else 0
    limits = entries.timeout_ms[entries.timeout_ms > 0]
    timeout = int(float(limits.min()) * 1e6) if len(limits) else ABSENT
    quiet = dump.written_ns - last
    if dump.written_ns == ABSENT or not -FILE_CLOCK_LAG_NS <= quiet <= COPIED_LATER_NS:
        lost = dump.written_ns != ABSENT and abs(quiet) > COPIED_LATER_NS
        return Activity(
            pause_ns=longest,
            copied=lost and last > CLOCK_UNSET_NS,
            last_ns=last,
            timeout_ns=timeout,
            retires=bool(entries.retired.any()),
            awaits_watchdog=_awaits_watchdog(entries),
        )
    usual = min(longest, int(timeout * TIMED_OUT_SHARE)) if timeout != ABSENT else longest
    patience = min(max(PAUSE_FACTOR * usual, recent), LONGEST_PAUSE_NS)
    # A pause that comes again, an evaluation by one rank, may be somewhat longer than before.
    again = int(LATE_FACTOR * usual)
    again = min(again, int(timeout * TIMED_OUT_SHARE)) if timeout != ABSENT else again
    return Activity(
        quiet < max(again, patience),
        max(quiet, 0),
        longest,
        known,
        written_ns=dump.written_ns,
        outdated=len(limits) > 0
        and quiet > max(COPIED_TIMEOUTS * float(limits.max()) * 1e6, COPIED_LEAST_NS),
        last_ns=last,
        timeout_ns=timeout,
    )


def _awaits_watchdog(entries: Entries) -> bool:
    """True if something had ended so short a time before that the watchdog had not seen it yet.

    It looks ten times a second, and retires what has ended (``kWatchdogThreadSleepMillis`` in
    ``ProcessGroupNCCL.hpp``), but not what it has given up.
    """
    lasted = np.where(entries.completed_ns > 0, entries.completed_ns - entries.created_ns, 0)
    limit = entries.timeout_ms.astype(np.float64) * 1e6 * TIMED_OUT_SHARE
    given_up = (entries.timeout_ms > 0) & (lasted >= limit)
    return bool(((entries.state == State.COMPLETED) & ~entries.retired & ~given_up).any())
