"""Thresholds of admission, each with its unit and its reason."""

from __future__ import annotations

#: Share of the samples of two dumps that must agree for them to be of one process, or of one
#: program: a damaged file may have lost some.
AGREEING_SHARE = 0.5
#: Nanoseconds after which a file that was written later than its rank's last event is a copy:
#: nobody waits a day before taking a dump, and to copy a file loses its time.
COPIED_LATER_NS = 24 * 3600 * 1_000_000_000
#: Timeouts of operations after which a file may be a copy, too, as torch dumps, and ends the job,
#: once one is over; and no less than an hour in nanoseconds, as somebody may look at it by hand.
COPIED_TIMEOUTS = 2
COPIED_LEAST_NS = 3600 * 1_000_000_000
#: Nanoseconds without any operation of any rank from which on a job with nothing open is not
#: called healthy: a minute, for what it is in may leave no entry, as sends and receives on gloo, a
#: group of gloo beside NCCL's, or whatever its hosts do.  Nor is a host surely missing sooner.
LONGEST_IDLE_NS = 60 * 1_000_000_000
#: Nanoseconds by which the times that two ranks give to one operation differ on hosts that share a
#: clock, late arrivals included; hosts kept by NTP are milliseconds apart.
ONE_CLOCK_NS = 100_000_000
#: Nanoseconds by which entries of a rank's threads may be out of order; a clock that goes back by
#: more was set, and says nothing.
THREADS_APART_NS = 1_000_000
#: Nanoseconds: a wall clock before 2010 was never set, and says nothing.
CLOCK_UNSET_NS = 1_262_304_000_000_000_000
#: Factors: a rank is late after so many times its longest pause, and so many times the difference
#: between its longest and its shortest, as one that varies may be longer yet the next time.
LATE_FACTOR = 1.5
VARIATION_FACTOR = 32
#: Pauses that a dump must show for the longest to say anything.
KNOWN_PAUSES = 3
#: Nanoseconds after which a rank is late whose dump shows fewer.
FIRST_PAUSE_NS = 100_000_000
#: Operations of one group that are compared for that, the latest that both dumps have.
COMPARED_OPERATIONS = 16
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
