"""Thresholds of slowness: each with its unit, its reason and what it was measured on.

A *share* is one of the observed time from 0 to 1, a *factor* how many times as much as the
middle of the peers.  Two that have the same value here have different meanings; one meaning
has one threshold, whoever judges by it.
"""

from __future__ import annotations

# How much slower.

#: Factor of time, wall or processor.  A rank at 1.3 is found in 100 of 100 windows of 50 steps,
#: one at 1.1 in none, identical ranks in 0 of 500 (docs/performance.md, straggler detection).
SLOW_FACTOR = 1.15
#: Factor of processor time that cold caches explain, where ranks take each other's place on a
#: processor: identical work was seen to take up to 20 % more on one of them.
COLD_CACHE_FACTOR = 1.2
#: Factor of processor time that needs no further proof; identical work among busy neighbours
#: was seen to take up to 1.33 times (docs/stragglers.md).
CLEAR_FACTOR = 1.5
#: Factor by which one rank's loader must be slower than its peers' loaders, which vary more than
#: work does: they read files.
LOADER_FACTOR = 1.5
#: Factor against the slowest of the peers, so that no one of them is as slow as the accused.
BEYOND_ALL_FACTOR = 1.1

# How much it must matter.

#: Milliseconds of one entry of a section, below which a difference is never held against a rank:
#: sections of 0.1 to 0.9 ms differ by their own bookkeeping.
FLOOR_MS = 1.0
#: Milliseconds of a step or, without steps, of a stretch of work between operations.  The floor
#: that matters is a share of the time (LOSS_SHARE); this one is what clocks and wake-ups blur: in
#: loops of nothing but operations identical ranks differed by 0.06 ms a stretch, by 0.3 in DDP's.
STRETCH_FLOOR_MS = 0.5
#: Part of the mean own time before an operation from which on that is a stretch of work of its
#: own; operations in a row have next to none between them.
STRETCH_PART = 0.5
#: Milliseconds of the wait for a batch: with 1.0 a control of ``slow_input`` would be called
#: starved.
BATCH_FLOOR_MS = 2.0
#: Share of the time that a rank must cost its peers, exceed them by, and, where that is the
#: reason, compute beyond them: on identical work up to 0.04 were seen.
LOSS_SHARE = 0.08
#: Share of a rank's excess that a cause must account for to be the cause.
MAIN_PART = 0.5
#: Nanoseconds of processor time that clocks read now and then can tell, at least.
LEAST_PROCESSOR_NS = 100_000_000

#: Milliseconds below which times are taken for this: the clock and the section's own cost blur
#: them.
RESOLUTION_MS = 0.01
#: Score below which a rank is a straggler, strictly, unless the caller has it otherwise; that of
#: NVIDIA's resiliency extension.
SCORE_THRESHOLD = 0.75

# How sure.

#: A difference in units of its own noise (standard errors) that is no chance.
CERTAIN = 4.0
#: The same of a rank's lateness where its processor time shows the reason too.  Lower than the
#: next one, which excuses and does not accuse: with 2.0, 19 of 1,187 slow ranks of
#: simulated jobs are missed.
LIKELY_LATE = 1.5
#: The same where processor time shows the reason all through the window.  With ``LIKELY_LATE`` 3 of
#: 14 ranks that compute twice as long, in every tenth step, are missed (1.3 to 3.8); the processor
#: time of identical ranks differs by 1.17 at the most in 48 windows, and 1.5 is asked for.
FAINTLY_LATE = 0.5
#: The same from which on a peer of a slow rank counts as slowed down, too: it then excuses it.  And
#: that of few long stalls that cost STALLED_SHARE of the time: n alike have the root of n.
LIKELY_SLOWED = 2.0
#: Entries that say something about a median, and about a mean or the quickest fifth.
FEWEST_FOR_MEDIAN = 5
FEWEST_FOR_MEAN = 20
#: Operations or batches of a rank, and nanoseconds of the job, that say something of a whole job.
FEWEST_IN_JOB = 12
SHORTEST_JOB_NS = 500_000_000

# Sections: stalls, and what shows all through a window.

#: A stall takes this many times its window's median, and this many milliseconds more.
STALL_FACTOR = 3.0
STALL_MS = 5.0
#: A stall counts if so many entries began since the last one that did: they come in clusters.
STALLS_APART = 5
#: Stalls of a slow rank: so many, and as many again for each of the so many peers that have
#: most; and this share of its time.  Their number alone is a poor guide.  Of a whole job this
#: share of the time is lost to them: on controls own time beyond peers' was 0.08 of it at most.
STALLS = 4
STALLING_PEERS = 3
STALLED_SHARE = 0.2
#: Factor by which stalls may be more than certainty has them if all are alike (0.9 to 1.1 times
#: were seen of stalls of 150 ms; what is uncertain for other reasons are many short ones).
UNEQUAL_STALLS = 2.0
#: Stretches that need not show a difference, of a full number of them and of fewer.
EXCEPTIONS, FEW_EXCEPTIONS = 3, 1
#: Unless it shows for so many milliseconds of work: no passing disturbance lasts that long.
LASTING_MS = 5000.0
#: Windows whose numbers of entries are further apart than this factor do not cover the same steps.
IN_STEP_FACTOR = 1.1

# Waits for input.

#: Share of the time lost to input from which on a report says so and, where no loader of any rank
#: ever rests, a job is starved (0.80 to 1.00 of it on starved jobs).
INPUT_SHARE = 0.15
#: The same without that proof.  Ranks that load in their own process wait for all that it takes,
#: 0.20 to 0.26 of the time on healthy controls of ``slow_input_and_compute``: with 0.15 these, and
#: a control each of ``slow_input`` and ``shm_exhausted``, would be called starved.
DOMINANT_INPUT_SHARE = 0.4
#: Share of the time that a loader is busy: from here on it never rests (0.90 to 1.00 on starved
#: jobs); is behind as well, though its rank has to wait for slower ones; keeps up (0.02 to 0.31
#: on controls; up to 0.81 was seen where its rank hardly waited).
SATURATED = 0.85
BUSY_LOADER = 0.6
IDLE_LOADER = 0.5
#: Share of the time that a rank waits for its input below which its loader is not seen to lag.
UNSEEN_WAIT_SHARE = 0.05

# Processor time of a whole job.

#: Tenths of the time in which a rank must compute more: where it is clear, and where it is not.
CLEAR_TENTHS = 3
ALL_TENTHS = 8
#: Tenths in which a rank that stalls now and then must have lost time: a machine disturbs one rank
#: for less than half of it.
MOST_TENTHS = 6
#: Run-queue delay against a rank's excess of processor time: beyond the first the machine is the
#: reason, if the delay for each second of work is out of proportion too (RUN_QUEUE_FACTOR); where
#: no section shows the work, beyond the second.
MOSTLY_DELAYED = 5.0
HARDLY_DELAYED = 0.5
#: Part of the factor that every section shows where the processor is slower and not the work.
THROUGHOUT = 0.5
#: Part of a rank's excess of processor time that a section must hold to be named.
SECTION_PART = 0.4

# Waits for a processor.

#: Share of the time that ranks wait for a processor from which on a machine is crowded.
CROWDED_SHARE = 0.1
#: The same, on average over the ranks, from which on chance decides who enters an operation
#: last: in 6 of 760 jobs with a slow rank, beside another job on two processors, one that computed
#: 1.2 to 3.1 times as long was not late; ranks waited 0.12 to 0.54 of the time there. Two ranks
#: with a processor each wait for 0.03.
BLURRED_SHARE = 0.05
#: Share of the time that a rank on a busy host waits for a processor beyond its peers.
RUN_QUEUE_SHARE = 0.15
#: Its delay per processor time against its peers', which count as this at least: who works more
#: waits more.  It was 1.2 to 1.5 times as much for a rank that computes 1.4 times as long, on two
#: processors with 17 runnable threads.
RUN_QUEUE_FACTOR = 2.5
RUN_QUEUE_RATIO = 0.02
#: What it may compute more than its peers for each second that it waits beyond them: work
#: that is interrupted again and again finds its caches cold.
INTERRUPTED_WORK = 0.5

# Sizes of batches.

#: Factor of the size of a rank's batches that accounts for more work.
LARGER_BATCHES = 1.15
#: Work grows with the square of a sequence's length at most, and is measured with an error.
WORK_POWER = 2.0
WORK_ERROR = 1.3
#: Correlation between the size of its batches and a rank's time, from which on one follows the
#: other; share of the time that ranks lose to each other in turns; part of it that names a rank.
CORRELATED = 0.5
TURNS_SHARE = 0.12
TURNS_PART = 0.1

# Garbage collection.

#: Waits for a collection that come again and again, at least.
FEWEST_COLLECTIONS = 3
#: Part of all that is lost to collections from which on a rank is one of the culprits.
COLLECTION_PART = 0.2
#: Factor: a rank that takes so many times its peers' processor time has work that they have not;
#: threads that look for work now and then took 1.7 times as much.
POLLING_FACTOR = 3.0
