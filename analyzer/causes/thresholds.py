"""Thresholds of the detectors, each with its unit and its reason."""

from __future__ import annotations

#: Confidence of a healthy verdict where evidence on some rank's speed is missing: below that of a
#: healthy one that looked at all, above even odds, as most jobs have no slow rank.
UNSEEN_SPEED = 0.75
#: Probability of a hang where dumps fit one as well as a job that moves.
UNSETTLED = 0.5
#: Confidence from which on what a rank does instead of a barrier is its cause.
BARRIER_LABEL_SURE = 0.9
#: Seconds before a rank came to rest in which an error of the disk may be why.
DISK_ERROR_S = 1.0
#: Share of its limit from which on a control group is at it.
AT_MEMORY_LIMIT = 0.97
#: Per second: how often a group under pressure met its memory limit.
REFUSALS_PER_S = 10.0
#: Per second: pages that a group under pressure read again, or faulted in from disk.
REFAULTS_PER_S = 100.0
#: Share of the time in which everything on the host waited for memory.
STALLED_SHARE = 0.1
#: Share of its periods in which a control group used its processor quota up.
THROTTLED_PERIODS = 0.3
#: Share of the time for which one of a group's processors stood still.
THROTTLED_TIME = 0.2
#: Fewest periods of a quota, of 100 ms unless set otherwise, that say anything.
FEWEST_PERIODS = 10
#: Seconds without an answer after which a file system is said not to answer.
UNANSWERED_S = 0.5
#: Descriptors that must be left for a process to be called able to open more.
SPARE_DESCRIPTORS = 8
#: Bytes of shared memory that Docker gives unless told otherwise: with no more than this a bus
#: error needs no other explanation.
DEFAULT_SHM_BYTES = 64 << 20
#: Bytes a second that no sound link between hosts of a training job stays below when it has
#: something to send all the time.
SLOW_LINK_BYTES_S = 4e6
#: Factor by which a slow link stays behind the best of the job's other links, where there are any.
SLOWER_LINK = 4.0
#: Other links of its length that a link between two GPUs is compared with, at least: of one other
#: nothing tells which of the two is as it should be.
FEWEST_OTHER_LINKS = 2
#: Milliseconds of a transfer between two GPUs up to which launches and wake-ups are what is timed:
#: on the emulated device sound messages of 8 KiB took 1.2 to 1.5 at a load of 5 to 7, ones through
#: 512 KiB a second 17.
SHORTEST_TRANSFER_MS = 1.0
#: Share of the time in which the sender of a slow link had something to send.
BUSY_LINK = 0.5
#: Share of that time in which the receiver or the sender itself may have held it up.
HELD_UP_LINK = 0.2
#: Share of what came in that a receiver who reads all of it may not have read at the moment.
UNREAD_SHARE = 0.05
#: Segments on the way below which a receiver may still hold its acknowledgement back.
ACKNOWLEDGED_LATE = 4
#: Bytes of a segment between hosts, and within one: the loopback device takes 64 KiB at a time.
SEGMENT_BYTES = 1448
LOOPBACK_SEGMENT_BYTES = 65_483
#: Nanoseconds: a rank that has been away from its peers for less is in the middle of a step.
AWAY_NS = 3_000_000_000
#: Part of the confidence that is left where the look was early and may have met a wait in passing.
EARLY_PART = 0.75
#: Nanoseconds: a single wait from which on one rank's work holds the job up, at most.
LONG_WORK_NS = 8_000_000_000
#: Nanoseconds: a wait that counts with others like it, such as for an evaluation every epoch.
#: Steps in which a rank is that much slower than its peers are hardly known.
LONG_WORK_AGAIN_NS = 3_000_000_000
#: Factor: beyond its peers' own time in a stretch, from which on a rank does there what they do not
#: do at all; slower at the same work a rank is by a few times.
ALONE_FACTOR = 10
#: Factor: of a job that is watched with less patience, this many times that patience.
LONG_WORK_PATIENCE = 3
#: Seconds: counters that were watched for less give no rate.
SHORTEST_WATCH_S = 1.0
#: Seconds for which a sender must have had something to send for a rate to be told.
SHORTEST_BUSY_S = 0.05
#: Nanoseconds after the first lost call to the store within which the end of its keeper was noted.
KEEPER_NOTED_NS = 5_000_000_000
#: Part of the observed time, as a divisor, that one rank's work must last to hold the job up.
LONG_WORK_DIVISOR = 3
#: Rows of one kind of evidence that a verdict lists.
LISTED_ROWS = 64
#: Share of its samples in which a GPU must be held down to be called throttled: a peak of its
#: temperature passes.
THROTTLED_SAMPLES = 0.5
#: Fewest samples of a GPU, a second apart, that say anything of its clock.
FEWEST_GPU_SAMPLES = 3
#: Share of its peers' clock below which a GPU is slower: boost clocks of sound ones differ by a few
#: percent.
SLOWER_CLOCK = 0.9
