"""The wait-for graph of a job's communication at one moment, as matching leaves it.

Everything later (heuristics, arbitration) reads this and not the dumps.  Ranks
are global ranks.  A sequence number is the group's ``collective_seq_id``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from hanglab.analyzer.graph.lone_steps import LoneSteps
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, ProcessGroup
from hanglab.analyzer.matching.group_names import NameConflict
from hanglab.analyzer.wording import Need


class WaitKind(str, Enum):
    NOT_ENTERED = "not_entered"  # the other has not entered this operation
    PEER = "peer"  # the other half of a send or receive is missing
    STALLED = "stalled"  # everybody has entered, nothing completes
    DEVICE = "device"  # a peer completed it, this rank did not: its device or process stopped


@dataclass
class Wait:
    """``call`` is unfinished; it waits for ``on`` (global ranks, without the rank itself)."""

    call: Call
    kind: WaitKind
    on: tuple[int, ...]


@dataclass
class Sink:
    """A rank that others wait for and that waits for nobody itself.

    ``outside``: it has nothing unfinished, so what it does is told by its stack.
    Otherwise its operation is unfinished although a peer completed it, or
    nothing is known of it at all (``unknown``).
    """

    rank: int
    #: What the waiters wait for it to enter.
    awaited: Call
    outside: bool
    unknown: bool = False
    stopped_device: bool = False
    victims: tuple[int, ...] = ()
    #: Its last call that is known.
    last: Call | None = None
    #: It issued operations that its dump does not show (point-to-point on gloo), so it may
    #: be in one of them.
    hidden: bool = False
    #: It has operations open that do not keep it from coming.
    elsewhere: bool = False
    #: Its own rounds alone tell that it has yet to come: rings lost the messages before.
    by_rounds: bool = False
    #: That its device stopped is concluded from what is open on all ranks: no peer has finished
    #: what it is in.
    by_exclusion: bool = False
    #: By its buffer the device has not begun what nothing older on it holds up.
    unstarted: bool = False
    #: Ranks of an operation that explains all that is open, too, if it alone does not come through.
    stalled: tuple[int, ...] = ()
    #: Ranks that part from it by a call too many of theirs, or too few of its own.
    disputed_by: tuple[int, ...] = ()
    #: Ranks with nothing unfinished that did all that it did, and then what it has yet to do.
    passed_by: tuple[int, ...] = ()
    #: The one other rank of the job waits for it, in an operation that it may have too many: its
    #: own rounds do not prove that it was due.
    untold: bool = False
    #: No dump holds what its peers called where it is, so that its own call may be another one.
    unseen: bool = False
    #: Seconds for which it had done nothing when its file was written; None if that is long, or
    #: nothing tells.
    paused_s: float | None = None


@dataclass
class Cycle:
    """Ranks that wait for each other in a ring, with the call in which each one waits.

    Each rank waits for the one after it, the last for the first.
    """

    ranks: tuple[int, ...]
    calls: tuple[Call, ...]
    #: True where every call of the ring is a send or receive.
    p2p: bool
    #: The rank that left the order of the others, or its own; empty where nothing tells them apart.
    deviating: tuple[int, ...] = ()
    #: Ranks of which any one, had it gone on, would have freed all.
    candidates: tuple[int, ...] = ()
    #: False where sends and receives could not be counted from their beginning.
    certain: bool = True
    #: All of them make the same call of the program, each on another group.
    wrong_group: bool = False
    #: The deviating rank makes its last call once more, where its peers go on to theirs.
    repeated: bool = False
    #: One of its ranks has left out a call, or has one too many, as far as later calls tell.
    miscounted: bool = False
    #: Streams of devices wait for each other in it, and no host need to.
    streams: bool = False
    #: Its ranks entered operations in other orders than each other's before, and went on.
    crossed_before: bool = False
    #: A message is in it, whose other half nobody has issued, and a collective.
    lacks_message: bool = False
    #: Several ranks went on as each of the two sides did, too few more as one to tell.
    parted: bool = False
    #: Number of ranks that went on otherwise than the deviating ones, having been alike till then.
    outvoted_by: int = 0


@dataclass
class Unmatched:
    """A send or receive whose other half never came, although its peer is past it.

    Or a collective that one of ``deviating`` left out, while its peers wait for it there.
    """

    call: Call
    #: Where the peer waits instead.
    instead: Call | None = None
    #: Who left the order kept before; empty where nothing tells the sides apart.
    deviating: tuple[int, ...] = ()
    #: Calls that wait for what went to, or was taken from, another rank.
    missed: tuple[Call, ...] = ()
    #: The two miss each other: they would be one message but for a tag or a group.
    missing: bool = False
    #: The one that deviates left its own rounds, which have the call there.
    by_rounds: bool = False
    #: That those of ``deviating`` did is no more than likely.
    likely: bool = False
    #: The two ends have issued other numbers of such messages up to a collective of both.
    counted: bool = False
    #: The other half is there, behind what its rank waits in.
    queued: bool = False
    #: It meets the first of ``missed``, whose size is that of another message of the two.
    shifted: bool = False
    #: A third rank that sent one more than its share to the peer, which takes from any rank.
    sender: int | None = None

    @property
    def ends(self) -> tuple[int, ...]:
        """The rank that waits, and the one that owes it the other half, where that is known."""
        other = self.call.peer if self.instead is None else self.instead.rank
        return (self.call.rank,) if other is None else (self.call.rank, other)


@dataclass
class EndedOtherwise:
    """Ranks that have ended a number of a group at which others wait for them.

    Those are more; else the group is a pair, and nothing tells which of the two called otherwise.
    """

    ranks: tuple[int, ...]
    #: What the others are in.
    calls: tuple[Call, ...]

    @property
    def tied(self) -> bool:
        return len(self.ranks) == len(self.calls)


@dataclass
class OrderDeparture:
    """A rank that left the order of operations which all others keep."""

    rank: int
    #: The other rank, where there are but two, and nothing tells which of them left it.
    tied: tuple[int, ...]
    #: Its call there, and the one that a peer made.
    call: Call | None
    instead: Call | None
    #: What its later calls prove that it did; at most one of the three.
    left_out: bool = False
    added: bool = False
    swapped: bool = False
    #: It stands in its call, which by its line came before what peers wait in, of another group.
    ring: bool = False
    #: The order is that of its own rounds.
    own: bool = False
    #: It alone keeps that; all others left out what it called.
    left_by_others: bool = False
    #: Its buffer has lost the call; ``call`` is the first of the same group that it holds, and
    #: ``instead`` the same one of a peer.
    counted: bool = False
    #: Other ranks that left it alike.
    others: tuple[int, ...] = ()
    #: Those who keep the order are the ranks in its place in other replicas.
    siblings: tuple[int, ...] = ()


@dataclass
class MismatchedMessage:
    """A send and a receive that are one message, with arguments that differ."""

    sent: Call
    taken: Call
    difference: Difference
    #: The end that alone is unlike all other messages of the two; None where nothing tells.
    deviating: int | None
    #: Both ends finished it all the same.
    finished: bool


@dataclass
class WaitForGraph:
    """``ranks`` are those with usable evidence, ``expected`` all that the job should have."""

    ranks: tuple[int, ...]
    expected: tuple[int, ...]
    #: By its dumps, no GPU was behind the job's groups.
    emulated: bool = False
    groups: list[ProcessGroup] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    #: Calls of one operation with arguments that differ, which did not hold anybody up.
    silent_mismatches: list[Divergence] = field(default_factory=list)
    mismatched_messages: list[MismatchedMessage] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    cycles: list[Cycle] = field(default_factory=list)
    unmatched: list[Unmatched] = field(default_factory=list)
    #: Member sets whose ranks do not agree on the names of their groups.
    name_conflicts: list[NameConflict] = field(default_factory=list)
    departures: list[OrderDeparture] = field(default_factory=list)
    ended_otherwise: list[EndedOtherwise] = field(default_factory=list)
    #: Calls of one rank alone, against its own order, while its peers have nothing open.
    added: list[Call] = field(default_factory=list)
    #: Matched operations that everybody entered and nobody finished.
    stalled: list[Wait] = field(default_factory=list)
    #: The last call of each rank that is known, by creation.
    last_calls: dict[int, Call] = field(default_factory=dict)
    #: Unfinished operations per rank; a rank with none and with evidence has an empty list.
    unfinished: dict[int, list[Call]] = field(default_factory=dict)
    #: Entries of each rank that are unfinished sends and receives whose other half has finished:
    #: its batch waits for others.
    exchanged: dict[int, frozenset[int]] = field(default_factory=dict)
    #: Ranks with unfinished sends or receives of which rings that lost their beginning do not tell
    #: whether the other half has come.
    uncounted: frozenset[int] = frozenset()
    #: (group name, seq) up to which every member provably completed everything.
    agreed: dict[ProcessGroup, int] = field(default_factory=dict)
    #: Evidence that would settle what stays open, such as rank 5's dump.
    needs: list[Need] = field(default_factory=list)
    #: Ranks without evidence that alone could be what holds some rank up.
    open: tuple[int, ...] = ()
    #: A member of a group is behind or not known at all, or a dump may not show all that has
    #: not finished.
    incomplete: bool = False
    #: Nothing tells how many ranks the job has: there may be more than those expected.
    world_size_unknown: bool = False
    #: Ranks whose dumps tell of nothing: of no operation, and of no group that there is.
    empty: tuple[int, ...] = ()
    #: Ranks whose sends and receives leave no entry.
    silent_p2p: frozenset[int] = frozenset()
    #: The second look at ranks' dumps, for whoever needs whole sequences; None without any.
    lookup: CallLookup | None = None
    #: Steps that a rank alone took from one line to another; None where no orders were read.
    lone_steps: LoneSteps | None = None
    #: Ranks whose dumps show them on their way, so that they do not tell where they stand.
    progressing: tuple[int, ...] = ()
    #: Seconds for which no rank had done anything when its dump was written, where that is longer
    #: than jobs pause; 0 where some rank had, or nothing tells.
    idle_s: float = 0.0
    #: Ranks that have entered fewer operations of a group than others of its members.
    behind: tuple[int, ...] = ()
    #: Ranks whose files break off.
    broken_off: frozenset[int] = frozenset()
    #: Those of them of which nothing tells what they did behind that.
    lost_ends: frozenset[int] = frozenset()
    #: No dump has an entry, so nothing tells when any rank did its last operation.
    no_entries: bool = False
    #: All files are copies that lost their times, so nothing tells how long after that they were
    #: dumped, and groups of which no buffer tells may have been in use.
    copied: bool = False
    #: Ranks whose dumps show that nothing of theirs is unfinished.
    idle: frozenset[int] = frozenset()
    #: Ranks that wait on their hosts for what a peer has, and for whom; for nobody where it is
    #: not known who can end that.
    host_waits: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def held_on_hosts(self, ranks: Iterable[int]) -> set[int]:
        """Ranks that wait on their hosts for one of ``ranks``, directly or not."""
        held = set(ranks)
        found: set[int] = set()
        while more := {r for r, on in self.host_waits.items() if on and held.issuperset(on)} - held:
            held |= more
            found |= more
        return found

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.expected) - set(self.ranks)))
