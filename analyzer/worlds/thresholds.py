"""Thresholds of admission, each with its unit and its reason."""

from __future__ import annotations

#: Share of the samples of two dumps that must agree for them to be of one process, or of one
#: program: a damaged file may have lost some.
AGREEING_SHARE = 0.5
#: Nanoseconds after which a file that was written later than its rank's last event is a copy:
#: nobody waits a day before taking a dump, and to copy a file loses its time.
COPIED_LATER_NS = 24 * 3600 * 1_000_000_000
#: Nanoseconds without any operation of any rank from which on a job with nothing open is not
#: called healthy: a minute, for what it is in may leave no entry, as sends and receives on gloo, a
#: group of gloo beside NCCL's, or whatever its hosts do.
LONGEST_IDLE_NS = 60 * 1_000_000_000
#: Nanoseconds: a wall clock before 2010 was never set, and says nothing.
CLOCK_UNSET_NS = 1_262_304_000_000_000_000
#: Nanoseconds: a rank that did something so short a time before its dump was written was on its
#: way.
RECENT_NS = 500_000_000
#: Nanoseconds, where the dump has stacks: torch looks up their symbols after it has read the
#: buffer, which takes up to two seconds, and writes the file then.
RECENT_WITH_STACKS_NS = 2_000_000_000
#: Factor: a rank that has paused before may pause so many times as long, within LONGEST_PAUSE_NS.
PAUSE_FACTOR = 3
#: Nanoseconds that a pause of an active rank lasts at most.
LONGEST_PAUSE_NS = 5_000_000_000
#: Nanoseconds by which the clocks of file systems lag behind the host's.
FILE_CLOCK_LAG_NS = 1_000_000_000
#: Share of an operation's timeout: a wait as long is no usual pause.
TIMED_OUT_SHARE = 0.9
