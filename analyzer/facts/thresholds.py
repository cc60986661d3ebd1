"""Thresholds of facts, each with its unit and its reason."""

from __future__ import annotations

#: Share of one core above which a rank, or a process below it, is at work rather than waiting.
BUSY = 0.8
#: Factor: a quiet rank that computes is accused only beyond this many of its longest earlier
#: pauses.
PAUSES = 10
#: Nanoseconds after which a recorder thread that has not run is kept from running; it beats
#: several times a second.
SILENT_NS = 1_000_000_000
#: Seconds: all ranks are unusually idle from then on, if that is longer than any pause before by
#: PAUSES.
IDLE_S = 5.0
#: Seconds, of a rank that others wait for in an operation: they are idle because it is.
AWAITED_IDLE_S = 2.0
#: Factor: such a rank's idle time against its longest earlier pause.
AWAITED_PAUSES = 2
#: Nanoseconds: ends are noted when somebody looks, in no order, so of two within this time either
#: may be first.
END_BLUR_NS = 1_000_000_000
#: Nanoseconds within which one exception may be logged and printed, one after the other.
REPEATED_PRINT_NS = 20_000_000
#: Nanoseconds: of a smaller difference between hosts' clocks, what messages took may be most.
CLOCKS_APART_NS = 500_000_000
#: Nanoseconds: differences below this, on one host, are the clock's.
SAME_HOST_CLOCK_NS = 20_000
#: Factor: a rank is so many times later than its own gap to the next operation takes, if its peers
#: would have entered that before it came to this one, were they free to; their gaps differ by less.
#: A rank that computed 30 ms more than its peers, in passes of 5 ms, was 7 to 9 times as late.
LATE_GAPS = 2
#: Times that peers have to have waited for such a rank at one place of a step: once may be chance.
FEWEST_LATE = 3
#: Nanoseconds: two readings of aligned clocks that differ by less say nothing about order.
ALIGNED_CLOCK_NS = 50_000
#: Collectives of one group that are aligned, the latest: memory and time stay bounded.
LATEST_COLLECTIVES = 20_000
#: Members above which the peers' median is taken over all of them: it hardly differs, and takes
#: one pass.
EXACT_MEDIAN_MEMBERS = 16
#: Operations around one that its clock offset is the median of.
CLOCK_WINDOW = 21
#: Fewest operations that say anything about a clock's offset.
CLOCK_FEWEST = 5
#: Nanoseconds: shorter looks at the processors say nothing.
SHORTEST_USAGE_NS = 300e6
#: Parts that the observed time is cut into, to see whether something lasts.
PARTS = 10
#: Nanoseconds that a sampled line stands for: the recorder's mean time between two looks at the
#: main thread (recorder/rank/service.py).  On a crowded machine it is more, never less.
SAMPLE_NS = 50e6
#: Share of the longest frame's time that a frame of a trace must span to have been there all the
#: time.
LASTING_SHARE = 0.95
#: Share of the host's memory below which it has hardly any left, so that a kill without a group of
#: its own is believed.
SCARCE_MEMORY_SHARE = 0.1
#: Retransmissions in a row, each twice as late as the one before: 1.4 s at the least.
RETRANSMISSIONS = 3
#: Characters at the end of a text that are compared; the beginning may have been cut off.
COMPARED_STDERR = 1_000
#: Bytes: checksums of a larger Case are not compared, which would take longer than the analysis.
CHECKED_BYTES = 64 << 20
#: Child processes that a verdict names.
NAMED_PROCESSES = 3
#: Times that a question was asked with the same answer before a rank is said to poll.
POLL_TIMES = 3
#: Nanoseconds by which a file is older than the job's first process before nobody of the job has
#: made it: clocks of file servers differ.
OLDER_FILE_NS = 60_000_000_000
#: The same on a file system of the host: its times are those of the last tick of the host's clock,
#: up to 10 ms before, and a rank notes its start after its interpreter has begun.
OLDER_FILE_OF_HOST_NS = 100_000_000
#: Seconds since the latest question, beside two of its usual intervals, after which a rank is no
#: longer said to poll: a crowded machine keeps it, and the thread that takes the time.
POLL_LATE_S = 1.0
#: Differing settings that a verdict lists.
LISTED_SETTINGS = 8
#: Seconds without progress after which a job is called hung, where its Case does not tell.
DEFAULT_HANG_S = 5.0
#: Samples of a host, the latest, in which memory may have been scarce when a rank was killed.
SCARCE_MEMORY_SAMPLES = 5
#: Samples of a host, the latest, in which a limit that was met still shows: what a process had
#: filled is often gone soon after it.
LATEST_SAMPLES = 3
#: Iterations of a loop from which on it is no chance that the optimizer made as many steps.
FEWEST_STEPS = 3
#: Late steps from which on they are said to be few among many: two have one distance always.
FEWEST_LATE_STEPS = 3
#: How many times as many steps as late ones there must be, so that lateness is no matter of every
#: step: 6 of 70 of slow_every_tenth are late, and 19 of 50 of slow_sometimes, which is often.
RARELY_LATE = 3
#: How many times as late the least late of them must be as the latest of the others: 2.1 to 10 in
#: three runs of slow_every_tenth, at most 1.4 in slow_compute, where every step is late.
LATE_STEPS_FALL = 2.0
#: Part of a rank's lateness that those steps must hold: 0.81 to 0.86 in those runs; the rest is
#: what a crowded machine spreads over all.
LATE_STEPS_PART = 0.7
#: Pieces into which gloo cuts a tensor at most, in multiples of the group's size (allreduce.cc).
GLOO_PIECES = 64
#: Transfers between two ranks, timed by both, from which on a quarter of them is no chance.
FEWEST_TRANSFERS = 8
#: Share of transfers, the quickest, that a slow link must delay, too: on the emulated device at a
#: load of 19 on 2 cores a sound link's lower quartile was 6.0 ms and this one 0.1; of one through
#: 512 KiB a second they were 16.4 and 16.2.
QUICK_SHARE = 0.1
