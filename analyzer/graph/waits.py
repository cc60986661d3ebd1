"""Unfinished operations: the ranks that are in them, and those that are not there yet.

The graph has two kinds of nodes, so that an operation of thousands of ranks
costs thousands of edges and not millions: a rank leads to the operations that
it has not finished, an operation to the ranks that hold it up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.thresholds import UNORDERED
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.message_mismatches import MessageMismatch
from hanglab.analyzer.matching.summary import GroupSummary, P2PChannel, Pending, RankSummary
from hanglab.analyzer.matching.thresholds import UNFINISHED_BY_STATUS
from hanglab.recorder.case.operations import op_of

#: (index of the group, sequence number), or (index of the group, rank, index of the entry).
Key = tuple[int, ...]
#: An operation as ranks have it in common, and whether the thread that issued it is the one that
#: issues another.
_Open = tuple[Hashable, bool]
#: Several, messages by their other ends; and messages by how far these are in the group.
_Opened = tuple[frozenset[_Open], frozenset[_Open]]
#: Rank -> thread -> order of its oldest operation that none of its later ones has overtaken.
_Oldest = dict[int, dict[str, int]]


@dataclass
class OpenOperation:
    """One unfinished operation, or one half of a send and receive."""

    key: Key
    group: ResolvedGroup
    #: None for point-to-point.
    seq: int | None
    op: str
    #: Rank -> its entry; the index of an entry is ABSENT where only a status tells of it.
    waiters: dict[int, Pending] = field(default_factory=dict)
    #: Known not to have entered it.
    absent: list[int] = field(default_factory=list)
    #: Nothing is known of them in this group.
    unknown: list[int] = field(default_factory=list)
    #: Provably through with it.
    finished: list[int] = field(default_factory=list)
    #: Have entered it behind an older operation that they have not finished.
    behind: list[int] = field(default_factory=list)
    #: Of the waiters, those that are held up here and not by something older.
    leaders: set[int] = field(default_factory=set)
    #: The other side of a send or receive; None for any source and for collectives.
    peer: int | None = None
    #: It is a receive from any source: one of ``absent`` has to come, and not all.
    any_source: bool = False
    #: False where counts of sends and receives could only be guessed.
    certain: bool = True
    #: Those absent that something else keeps away than what they have open: a waiter has gone
    #: on from that, and come here.
    elsewhere: frozenset[int] = frozenset()
    #: A divergence, a message whose ends do not agree, or names of groups that differ, explain why
    #: it does not finish.
    explained: bool = False
    #: Of a message whose ends do not agree.
    mismatched: bool = False
    #: It is a message of a batch in which somebody else lacks.
    in_held_batch: bool = False

    @property
    def exchanged(self) -> bool:
        """True for a send or receive whose other half has provably finished."""
        return self.seq is None and self.certain and bool(self.finished)

    @property
    def open(self) -> bool:
        """True where only ranks of whom nothing is known can be what holds it up."""
        return bool(self.unknown) and not (
            self.absent or self.behind or self.finished or self.explained
        )

    def blockers(self, rank: int) -> Iterator[int]:
        """Other ranks that hold ``rank`` up here, as far as is known."""
        return (other for other in self.holding(rank in self.leaders) if other != rank)

    def holding(self, leader: bool) -> Iterator[int]:
        """Ranks that hold up the waiters here: those that lead, or those behind older operations.

        A leader that stands here does not hold itself up.
        """
        if self.explained:
            return
        yield from self.absent
        if leader:
            yield from self.behind
            if self.open:
                yield from self.unknown

    def held_up_by(self, rank: int) -> Iterator[int]:
        """Waiters that ``rank`` holds up."""
        if self.explained:
            return
        if rank in self.not_entered:
            yield from self.waiters
        elif rank in self.queued or (self.open and rank in self.unknown):
            yield from (other for other in self.leaders if other != rank)

    @cached_property
    def not_entered(self) -> frozenset[int]:
        return frozenset(self.absent)

    @cached_property
    def queued(self) -> frozenset[int]:
        return frozenset(self.behind)

    @property
    def stalled(self) -> bool:
        """Everybody has entered it, nobody is held up elsewhere, nobody has finished."""
        return not (
            self.group.incomplete
            or self.absent
            or self.behind
            or self.unknown
            or self.finished
            or self.explained
            or self.in_held_batch
        ) and not (self.seq is None and self.peer is None)


#: Rank, half, index of the group, source, destination and tag.
Channel = tuple[int, str, int, int, int, int]


def channel_of(rank: int, half: str, pending: Pending, waiting: OpenOperation) -> Channel:
    """The channel of a message, with ``rank``'s sends or receives in it."""
    return rank, half, waiting.key[0], pending.src, pending.dst, pending.tag


@dataclass
class OpenOperations:
    operations: dict[Key, OpenOperation] = field(default_factory=dict)
    #: Rank -> its unfinished operations, oldest first.
    by_rank: dict[int, list[tuple[Pending, OpenOperation]]] = field(default_factory=dict)
    #: Ranks whose operation did not finish although its peers' did.
    stopped: set[int] = field(default_factory=set)
    #: Ranks whose operations do not queue behind each other.
    unordered: set[int] = field(default_factory=set)
    #: Ranks that have gone on after each operation that they have not finished: their hosts
    #: wait for one of these by now, or for nothing of it.
    unsettled: set[int] = field(default_factory=set)
    #: Rank -> operations that it has started and does not wait for.
    posted: dict[int, set[Key]] = field(default_factory=dict)

    @cached_property
    def messages(self) -> dict[Channel, list[Pending]]:
        """Each rank's unfinished sends, or receives, of a channel, in the order of their entries.

        Asked for once all are collected.
        """
        found: dict[Channel, list[Pending]] = {}
        for rank, mine in self.by_rank.items():
            for pending, waiting in mine:
                if waiting.seq is None:
                    half = op_of(pending.op).half
                    found.setdefault(channel_of(rank, half, pending, waiting), []).append(pending)
        for channel in found.values():
            channel.sort(key=lambda pending: pending.index)
        return found

    @property
    def all_issued(self) -> bool:
        """True if nothing is open that one of its ranks has not issued, or may not have."""
        return not any(one.absent or one.unknown for one in self.operations.values())

    def first(self, rank: int) -> list[OpenOperation]:
        """Operations that hold the rank up: its oldest unfinished one (a batch as a whole).

        All that it has not finished, where its operations do not queue.  What a later operation
        has overtaken holds up nobody, unless there is nothing else.
        """
        mine = self.held(rank)
        if rank in self.unordered or rank in self.unsettled:
            return [waiting for _, waiting in mine]
        oldest = oldest_of(mine)
        return [waiting for pending, waiting in mine if pending.order == oldest[pending.thread]]

    def held(self, rank: int) -> list[tuple[Pending, OpenOperation]]:
        """The rank's unfinished operations that none of its later ones has overtaken, if any."""
        mine = self.by_rank.get(rank, [])
        return [one for one in mine if not one[0].passed] or mine


def oldest_of(mine: list[tuple[Pending, OpenOperation]]) -> dict[str, int]:
    """The order of each thread's oldest operation: threads of a rank do not queue."""
    found: dict[str, int] = {}
    for pending, _ in mine:
        found[pending.thread] = min(pending.order, found.get(pending.thread, pending.order))
    return found


def find_waits(
    merged: MergedSummaries,
    group_table: GroupTable,
    divergent: dict[int, int],
    mismatches: Iterable[MessageMismatch] = (),
) -> OpenOperations:
    """``divergent`` maps a group's index to the number at which its members part."""
    waits = OpenOperations()
    _collect(merged, group_table, waits)
    for mine in waits.by_rank.values():
        mine.sort(key=lambda item: (item[0].order, item[0].index))
    waits.unsettled = {
        rank for rank, mine in waits.by_rank.items() if all(pending.passed for pending, _ in mine)
    }
    oldest = {rank: oldest_of(waits.held(rank)) for rank in waits.by_rank}
    # gloo has no streams: operations that overlap do not hold each other up.
    unordered = {rank for rank in waits.by_rank if merged.ranks[rank].gloo}
    waits.unordered = unordered
    matcher = _Matcher(merged)
    for key, waiting in waits.operations.items():
        if waiting.group.misnamed:
            waiting.explained = True
        elif waiting.group.doubtful:
            waiting.unknown += [r for r in waiting.group.members if r not in waiting.waiters]
        elif waiting.seq is None:
            matcher.complete(waiting)
        else:
            _complete_collective(waiting, merged)
            waiting.explained = waiting.seq >= divergent.get(key[0], waiting.seq + 1)
    _explain_mismatches(mismatches, waits)
    for waiting in waits.operations.values():
        waiting.leaders = {
            rank
            for rank, pending in waiting.waiters.items()
            if (
                pending.order == oldest[rank].get(pending.thread)
                or (rank in unordered and not pending.passed)
                or rank in waits.unsettled
            )
            and not merged.ranks[rank].history_truncated
        }
        if unordered.isdisjoint(waiting.waiters) and not waiting.group.doubtful:
            _find_behind(waiting, oldest)
    for waiting in waits.operations.values():
        _find_stopped(waiting, waits, oldest)
        _find_elsewhere(waiting, waits, merged)
    return waits


def _explain_mismatches(mismatches: Iterable[MessageMismatch], waits: OpenOperations) -> None:
    """Messages whose ends do not agree do not finish, nor does the rest of their batches."""
    for mismatch in mismatches:
        for rank, channel, position in mismatch.ends:
            mine = waits.by_rank.get(rank, [])
            orders = {
                pending.order
                for pending, waiting in mine
                if waiting.group is mismatch.group and channel.holds(pending, position)
            }
            for pending, waiting in mine:
                waiting.explained = waiting.explained or pending.order in orders
                waiting.mismatched = waiting.mismatched or (
                    waiting.group is mismatch.group and channel.holds(pending, position)
                )


def _collect(merged: MergedSummaries, group_table: GroupTable, waits: OpenOperations) -> None:
    def enter(rank: int, place: int, pending: Pending) -> None:
        key: Key
        if pending.seq is not None:
            key = (place, pending.seq)
        else:
            key = (place, rank, pending.index)
        waiting = waits.operations.get(key)
        if waiting is None:
            group = group_table.groups[place]
            waiting = OpenOperation(key, group, pending.seq, pending.op)
            waits.operations[key] = waiting
        if rank not in waiting.waiters:
            waiting.waiters[rank] = pending
            waits.by_rank.setdefault(rank, []).append((pending, waiting))

    for rank, summary in merged.ranks.items():
        for pending in summary.pending:
            place = group_table.places[rank, pending.part]
            if not pending.posted:
                enter(rank, place, pending)
            elif pending.seq is not None:
                waits.posted.setdefault(rank, set()).add((place, pending.seq))
    for place, group in enumerate(group_table.groups):
        for rank, progress in group.progress.items():
            for seq in sorted(progress.unfinished)[-UNFINISHED_BY_STATUS:]:
                # Where only the rank's status tells of it, its peers know what it is.
                known = waits.operations.get((place, seq))
                posted = (place, seq) in waits.posted.get(rank, ())
                if posted or merged.ranks[rank].truncated or (known and rank in known.waiters):
                    continue
                op = known.op if known is not None else ""
                enter(rank, place, Pending(ABSENT, UNORDERED, ABSENT, seq, op))


def _complete_collective(waiting: OpenOperation, merged: MergedSummaries) -> None:
    seq = waiting.seq
    assert seq is not None
    for rank in waiting.group.members:
        if rank in waiting.waiters:
            continue
        progress = waiting.group.progress.get(rank)
        entered = progress.has_entered(seq) if progress is not None else None
        if progress is None or entered is None:
            waiting.unknown.append(rank)
        elif not entered:
            waiting.absent.append(rank)
        elif progress.finished(seq):
            waiting.finished.append(rank)
        elif seq not in progress.unfinished or merged.ranks[rank].truncated:
            # What a file that breaks off called under that number, a status does not tell.
            waiting.unknown.append(rank)
    if waiting.finished and waiting.absent and not op_of(waiting.op).rooted:
        # Nobody finishes what another has not entered: this account is not to be trusted.
        waiting.unknown += waiting.absent
        waiting.absent = []


def _find_behind(waiting: OpenOperation, oldest: _Oldest) -> None:
    if waiting.seq is not None and len(waiting.waiters) > 1 and not waiting.finished:
        waiting.behind = [
            rank
            for rank, pending in waiting.waiters.items()
            if oldest[rank].get(pending.thread, UNORDERED) < pending.order < UNORDERED
            and not pending.started
        ]


def _find_stopped(waiting: OpenOperation, waits: OpenOperations, oldest: _Oldest) -> None:
    """A peer finished it and everybody has entered it: what holds a rank up is its own.

    Unless that is queued behind an older operation that it has not finished.
    """
    if not waiting.finished or waiting.absent or waiting.explained:
        return
    if waiting.seq is None:
        (rank, pending), *_ = waiting.waiters.items()
        # A batch finishes as a whole: each member's peer must have.
        batch = [w for p, w in waits.by_rank[rank] if p.order == pending.order]
        first = not any(p.order < pending.order for p, _ in waits.by_rank[rank])
        if first and not pending.started and all(w.certain and w.finished for w in batch):
            waits.stopped.add(rank)
        return
    op = op_of(waiting.op)
    if op.rooted:
        # A root that collects may lack a part that its sender put elsewhere, and went on.
        alone = len(waiting.waiters) == 1 and not waiting.unknown and not op.collects
    else:
        alone = len(waiting.waiters) + len(waiting.unknown) <= len(waiting.finished)
    if alone:
        waits.stopped.update(
            rank
            for rank, pending in waiting.waiters.items()
            if pending.on_device
            and (pending.order == oldest[rank].get(pending.thread) or rank in waits.unordered)
        )


def _find_elsewhere(waiting: OpenOperation, waits: OpenOperations, merged: MergedSummaries) -> None:
    """Absent ranks whose open operations one of the waiters had open, too, and came here.

    Ranks run one program: what did not keep the one from going on does not keep the other,
    unless the very thread that would have come is known to stand in it.
    """
    if waiting.seq is None or waiting.explained or waiting.group.doubtful:
        return
    busy = [rank for rank in waiting.absent if waits.by_rank.get(rank)]
    if not busy:
        return
    passed = {_passed(rank, waiting, waits) for rank in waiting.leaders}
    known: dict[_Opened, bool] = {}
    found = set()
    for rank in busy:
        open_ = _open_besides(rank, waiting, waits, merged.ranks[rank])
        if open_ is None:
            continue
        if open_ not in known:
            known[open_] = any(
                mine <= theirs
                for one in passed
                if one is not None
                for mine, theirs in zip(open_, one, strict=True)
            )
        if known[open_]:
            found.add(rank)
    waiting.elsewhere = frozenset(found)


def _is_numbered(rank: int, operation: OpenOperation) -> bool:
    """True if an operation's number is that of the program: of a message, from its first one on."""
    if operation.seq is not None:
        return True
    progress = operation.group.progress.get(rank)
    part = progress.part if progress is not None else None
    counted = part is not None and part.counted and rank in operation.group.members
    return counted and not operation.any_source


def _named(rank: int, opened: Iterable[tuple[Pending, OpenOperation, bool]]) -> _Opened:
    """Open operations, and whether one thread issues them and another, as ranks have in common.

    A message by its number, and its other end, as of all that wait for one; or by how far that is
    in the group, as in a ring.
    """
    names: tuple[set[_Open], set[_Open]] = set(), set()
    for pending, other, own in opened:
        ways: list[Hashable]
        if other.seq is not None:
            ways = [other.key] * 2
        else:
            peer = pending.dst if op_of(pending.op).sends else pending.src
            place = other.group.members.index(rank)
            which = other.key[0], pending.op, pending.tag, pending.position
            ways = [
                (*which, way, end)
                for way, end in (("to", peer), ("by", (peer - place) % len(other.group.members)))
            ]
        for found, way in zip(names, ways, strict=True):
            found.add((way, own))
    return frozenset(names[0]), frozenset(names[1])


def _open_besides(
    rank: int, waiting: OpenOperation, waits: OpenOperations, summary: RankSummary
) -> _Opened | None:
    """Operations that an absent rank has open; None where its thread may stand in one."""
    progress = waiting.group.progress.get(rank)
    thread = progress.part.thread if progress is not None and progress.part is not None else ""
    found = []
    for pending, other in waits.by_rank[rank]:
        own = pending.thread == thread
        if not other.absent or (own and pending.held) or not _is_numbered(rank, other):
            return None
        if other.group is waiting.group and other.seq is not None:
            # A group's operations come one after the other: that one is what it waits for.
            return None
        # A thread that works seldom may be one that the main thread has yet to start.
        if not own and thread != summary.thread:
            return None
        found.append((pending, other, own))
    return _named(rank, found)


def _passed(rank: int, waiting: OpenOperation, waits: OpenOperations) -> _Opened | None:
    """Operations that a waiter has open and did not wait for before it came here, if any."""
    here = waiting.waiters[rank]
    mine = waits.by_rank[rank]
    if any(
        pending.order < here.order and other.group is waiting.group and other.seq is not None
        for pending, other in mine
    ):
        return None
    earlier = [
        (pending, other, pending.thread == here.thread)
        for pending, other in mine
        if other is not waiting
        and _is_numbered(rank, other)
        and (pending.order < here.order or pending.thread != here.thread)
    ]
    posted = frozenset((key, True) for key in waits.posted.get(rank, ()))
    by_end, by_distance = (one | posted for one in _named(rank, earlier))
    return (by_end, by_distance) if by_end else None


class _Matcher:
    """Finds the other half of sends and receives, by peer and order."""

    def __init__(self, merged: MergedSummaries) -> None:
        self._merged = merged

    def _complete_any_source(self, waiting: OpenOperation, rank: int, pending: Pending) -> None:
        """Find who sends, in vain; else whoever of the group may send holds the receive up."""
        members = waiting.group.members
        for other in members:
            progress = waiting.group.progress.get(other)
            part = progress.part if progress is not None else None
            if part is None or other == rank:
                continue
            for channel in part.channels:
                if channel.sends and channel.dst == pending.dst and channel.tag == pending.tag:
                    if channel.awaited:
                        waiting.peer = other
                        return
        waiting.absent = [other for other in members if other != rank]

    def complete(self, waiting: OpenOperation) -> None:
        (rank, pending), *_ = waiting.waiters.items()
        members = waiting.group.members
        sends = op_of(pending.op).sends
        other = pending.dst if sends else pending.src
        if not 0 <= other < len(members):
            waiting.any_source = True
            self._complete_any_source(waiting, rank, pending)
            return
        peer = members[other]
        waiting.peer = peer
        if peer == rank:
            return
        summary = self._merged.ranks.get(peer)
        if summary is None or not summary.informative or summary.truncated:
            waiting.unknown.append(peer)
            return
        theirs = waiting.group.progress.get(peer)
        part = theirs.part if theirs is not None else None
        if part is not None and part.hidden:
            waiting.unknown.append(peer)
            return
        mine = waiting.group.progress[rank].part
        assert mine is not None
        channel = _channel(part.channels, pending, not sends) if part is not None else None
        own_summary = self._merged.ranks[rank]
        counted = _counted(own_summary, mine) and _counted(summary, part)
        waiting.certain = counted or mine.gloo
        if channel is None or part is None:
            if part is None and not summary.whole and not summary.gloo:
                waiting.certain = False
            waiting.absent.append(peer)
            return
        if any(c.src == ABSENT and not c.sends for c in (*part.channels, *mine.channels)):
            # Who took from whom is not told, so only what is open by now tells.  What its rank
            # does not wait for may have arrived.
            if not channel.awaited:
                waiting.absent.append(peer)
            return
        if counted:
            if pending.position >= channel.posted:
                waiting.absent.append(peer)
            elif pending.position not in channel.open:
                waiting.finished.append(peer)
            return
        if mine.unseen != ABSENT and pending.position + mine.unseen < channel.posted:
            # However many of its own the ring has dropped, its peer has issued more than that.
            if not channel.open:
                waiting.certain = True
                waiting.finished.append(peer)
            return
        own = _channel(mine.channels, pending, sends)
        assert own is not None
        if own.open.index(pending.position) >= len(channel.open):
            waiting.absent.append(peer)


def _counted(summary: RankSummary, part: GroupSummary | None) -> bool:
    """True if all sends and receives of a rank in a group are known."""
    if part is not None and part.counted:
        return True
    # On gloo the ring may be whole, but has no point-to-point.
    return summary.whole and not (summary.gloo if part is None else part.gloo)


def _channel(channels: list[P2PChannel], pending: Pending, sends: bool) -> P2PChannel | None:
    """The channel of the other half: of the open ones, the one that names the peer comes first."""
    fitting = [
        channel
        for channel in channels
        if channel.sends == sends
        and channel.tag == pending.tag
        and channel.dst == pending.dst
        and (channel.src == pending.src or (not sends and channel.src == ABSENT))
    ]
    return min(fitting, key=lambda c: (not c.awaited, c.src == ABSENT), default=None)
