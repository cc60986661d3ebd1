"""Thresholds and limits of matching, each with its unit and its reason."""

from __future__ import annotations

#: Share of an operation's timeout: a completion so near to it is the abort's doing.
FREED_SHARE = 0.97
#: Members of the largest group whose all_to_all sizes are compared pair by pair, which takes their
#: square.
COMPARED_SPLITS = 256
#: Numbers before and behind one whose sizes do not fit, in which calls of equal sizes are looked
#: for: some layers of a mixture of experts.
COMPARED_EXCHANGES = 32
#: Sequence numbers of a group that differ and are looked at closely; the first that holds is
#: enough.
SUSPECT_NUMBERS = 64
#: Histories of a group that are compared with each other: members that agree share one.
COMPARED_HISTORIES = 64
#: Operations by which a call site may be ahead of its peers'.
LONGEST_SHIFT = 256
#: Call sites in a row that are no chance.
AGREEING_SITES = 3
#: Lines between two calls of one function that are still taken for straight code: nobody writes
#: longer functions by hand.
LONGEST_FUNCTION = 1000
#: Operations that came as a pattern says before it is believed: one twice in a row is no pattern.
CONFIRMATIONS = 2
#: Operations of the longest pattern that is looked for.
LONGEST_PATTERN = 1024
#: Entries before an operation that tell the rank's own order.
PAST_ENTRIES = 1024
#: Sequence numbers between two histories that are still laid into one array: more would be mostly
#: gaps.
FARTHEST_NUMBERS = 1 << 14
#: Histories of a group that are searched for one that a rank agrees with: merging stays linear.
SEARCHED_HISTORIES = 16
#: Ranks of a divergence whose calls are read in full.
FULL_CALLS = 64
#: Signatures that are remembered by the identity of what they are of; to hash a stack takes longer
#: than all else.
REMEMBERED_SIGNATURES = 4096
#: Sequence numbers kept of one group, the latest.
LONGEST_RUN = 1 << 17
#: Unfinished operations that are believed of one status, the latest: a counter that is wrong may
#: claim millions.
UNFINISHED_BY_STATUS = 64
#: Numbers below this are told apart by a table of all of them, others by sorting.
DENSE_NUMBERS = 1 << 14
#: Runs of equal arguments kept of the messages of one channel: more change with each message, and
#: are compared up to there.
MESSAGE_RUNS = 64
#: Messages after one whose arguments differ in which both ends have to agree again for neither to
#: have left one out.
AGREEING_MESSAGES = 1
#: Operations of the longest run that two ranks may have in orders of their own.
LONGEST_REORDERING = 32
#: Lists of members whose shortest form is remembered.
REMEMBERED_MEMBERS = 64
#: Dumps against the highest number in a file's name: it is believed to be a rank if they are not
#: so many times fewer.
FILLED_PART = 2
#: Members per further member that is allowed for, where nothing says how many ranks there are.
UNLISTED_PART = 4
#: How many times as far away in time as the nearest generation of a group one may be that shares
#: its ``pg_id``.  Not measured: a middle between trusting clocks and trusting numbers alone.
SAME_NUMBER_FARTHER = 2
#: Exchanges before with the same sizes on all members, from which on sizes are the program's: what
#: the data gives is not the same on all of them so often.
FIXED_EXCHANGES = 8
#: Sends and receives of a channel that must have one size for the one that does not to be wrong:
#: two are as many as a message and its other half.
USUAL_SIZE = 3
#: Calls of an operation that two sides must have made each from a line of its own, and gone on, for
#: two more lines to be one place of the program: one may have met by mistake.
MET_APART = 2
#: Members that may be expected to fit by chance where exchanges of sizes that the data gives are
#: moved by one number, up to which that one does tells anything.
FITTING_BY_CHANCE = 0.01
