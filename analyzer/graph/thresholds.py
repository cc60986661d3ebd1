"""Limits of the wait-for graph, each with its unit and its reason."""

from __future__ import annotations

#: Ranks: jobs up to this size are read in full a second time, of larger ones the ranks that
#: matter.
SMALL = 64
#: Ranks of a large job that are read in full a second time.
FULL_RANKS = 256
#: Unfinished operations of a rank that the graph lists.
LISTED_OPERATIONS = 256
#: Sequence numbers before the last that a member finished that are looked at for one that all must
#: have entered.
LOOKED_AT_NUMBERS = 16
#: Ranks from which the shortest cycle is looked for.
CYCLE_STARTS = 256
#: Members of the largest group whose sends and receives are compared: every member has to be read
#: in full.
COMPARED_MEMBERS = 64
#: Waiting ranks of the largest job in which a receive from any source is followed to who could
#: serve it, which takes their square.
RELEASED_RANKS = 512
#: Others that have to count alike for the one that does not to be the odd one out.
AGREEING_COUNTS = 2
#: Messages after which a rank has a peer that it usually exchanges messages with.
USUAL_MESSAGES = 2
#: Messages of one kind, without a collective among them, from which a rank's order is known: more
#: than the microbatches of a step, of which gradient accumulation takes up to a hundred.
MANY_MESSAGES = 128
#: Messages that show what channel (peer, group and tag) a rank usually uses.
USUAL_CHANNEL = 4
#: Others that have to keep to one distance for it to be the group's.
AGREEING_DISTANCES = 3
#: Order of an operation that only a status tells of: nobody knows what came before it.
UNORDERED = 1 << 40
#: Ranks that wait for one, and whose clocks are compared with its: more have waited no less.
PEERS = 4
#: Earlier rounds of an exchange from which a rank's order of it is known.
KNOWN_ROUNDS = 2
#: Earlier rounds of an exchange that are looked at, the latest.
COMPARED_ROUNDS = 8
#: Rounds of a rank beside which the one in which its program ends is rare.
MANY_ROUNDS = 3
#: Open operations among which a message of a wrong group is looked for, each in all groups.
MOST_OPEN = 4096
#: Others of a rank's kind that tell its order: with one alone either of the two may have left it.
KINDRED_RANKS = 2
#: Calls of a rank from where it went on otherwise to where it waits: what a host issues beyond may
#: be more, but who has gone on alone for longer has a part of its own.
KINDRED_SINCE = 2
#: Messages that ranks of one kind have sent and received alike: one may be by chance.
KINDRED_MESSAGES = 2
#: Others whose order of two operations is the same by no chance.
AGREEING_ORDERS = 3
#: Ranks that enter two operations in one order, all but one, where each rank takes an order of its
#: own: seven of eight do by chance in 6 % of cases, three of four in 50 %.
UNLIKELY_AGREEING = 7
#: Orders of the same calls that one rank's fault makes of a common one: its own, and the rest's.
MOST_BY_ONE = 2
#: Operations that no two in swapped order have between them: who has finished so many since has
#: left one out.
SWAPPED_OPERATIONS = 16
#: Nanoseconds that two ranks' times have to be apart for their order to be known: clocks differ,
#: and the watchdog, whose completions would show it, looks every 100 milliseconds.
CLOCK_MARGIN_NS = 100_000_000
#: Ranks of each of whom it is asked whether its device, had it stopped, explains all that is open.
EXPLAINING_RANKS = 64
#: Ranks of the largest job whose orders are compared in pairs, which takes their square: with 1,000
#: entries each, 32 ranks are analyzed in 0.76 s of processor time.
COMPARED_ORDERS = 32
#: Collectives of each thread that are compared, the latest.
COMPARED_COLLECTIVES = 512
#: Channels between other ranks whose messages cross no collective, beside which one that does is
#: odd.
EVEN_CHANNELS = 1
#: Latest operations of a rank that may be by its fault, the most first: what came before them tells
#: its own rounds.
LATEST_ISSUED = (64, 16, 4, 1)
#: The same where only who waits in a ring is asked: a host that runs ahead has issued half a round.
LATEST_OF_RING = (64, 32, 16, 12, 8, 6, 4, 2, 1)
#: Other ranks that have to keep their own orders for the one that does not to be the odd one out.
MOST_IN_ORDER = 2
#: Calls of one line with the same arguments after which these are what it usually has.
USUAL_CALLS = 4
#: Later collectives of a group among which a call is looked for that another thread was to make.
TURNS_AHEAD = 8
#: Other groups that are asked what the members of one were to call: each has to be read in full.
SIBLING_GROUPS = 4
#: Calls that two groups of a description must have made alike, number by number, to be in step
#: where nothing that they share shows it: several steps of any program.
LONG_PAST = 16
#: Other ranks that have to go on alike from a place for the one that does not to be the odd one.
SUCCESSOR_VOTERS = 2
#: Places that follow one for it to have a usual one among them: behind a line of messages that come
#: with data any size may, and each would be held against all others.
MOST_SUCCESSORS = 16
#: Places in front of one by which ranks are compared that came to it, the latest: more than a layer
#: has.
PRECEDING_PLACES = 12
#: Places behind one that have to agree for an edit to be that of a rank: what comes later may
#: differ by what data make ranks do.
FOLLOWING_PLACES = 4
#: Calls of one line per call with arguments of its own, from which on these are the program's, such
#: as those of its first step, and not the data's: of objects that are sent every second is.
SINGLE_ARGUMENTS = 4
