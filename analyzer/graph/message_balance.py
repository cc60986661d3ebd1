"""Sends and receives of each two ranks, counted up to a collective that both have issued.

A program sends as often from one rank to another as that one receives, and by a collective of both
it has come to the same count in each round.  Where a message is unfinished (its other half may be
that of a later round, which hosts that run ahead have issued) and the counts of its channel (group,
sender, receiver, tag) differ there, one of its two ends has departed from the program: one whose
rounds were alike until then, one whose messages with its peers are no longer as many with each, or
the rank that is an end of all channels whose counts differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Int64
from hanglab.analyzer.graph.connected import connected
from hanglab.analyzer.graph.thresholds import COMPARED_MEMBERS, EVEN_CHANNELS, KNOWN_ROUNDS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.entry_queries import thread_of
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.recorder.case.operations import op_of

#: Index of the group, sequence number.
_Mark = tuple[int, int]


class _CountedChannel(NamedTuple):
    """Messages of one group and tag, from one global rank to another."""

    group: int
    sender: int
    receiver: int
    tag: int

    @property
    def ends(self) -> tuple[int, int]:
        return self.sender, self.receiver


_NOTHING: Int64 = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class UnmatchedMessages:
    """Unfinished sends and receives on channels whose counts differ, by the fault of one rank."""

    messages: tuple[OpenOperation, ...]
    #: Both ends of each of them; one of these departed from its program.
    ends: frozenset[int]
    #: The one that did; None where nothing tells.
    deviating: int | None
    #: They meet, with sizes of two rounds.
    shifted: bool = False


@dataclass
class _History:
    """One rank's messages and collectives, by the indices of their entries."""

    channels: dict[_CountedChannel, Int64] = field(default_factory=dict)
    marks: dict[_Mark, int] = field(default_factory=dict)
    #: By collective its group, operation and arguments: equal for the same one of each round.
    kinds: dict[_Mark, tuple[int, int, int]] = field(default_factory=dict)
    #: Groups of which all messages are known from the first on.
    counted: set[int] = field(default_factory=set)


def find_unmatched_messages(
    waits: OpenOperations, group_table: GroupTable, lookup: CallLookup
) -> list[UnmatchedMessages]:
    """Unfinished messages on channels whose counts differ, those of one rank's fault together."""
    open_messages, balance = _read_messages(waits, group_table, lookup)
    if balance is None:
        return []
    unequal = {c: odd for c in balance.channels if (odd := balance.odd_ends(c)) is not None}
    messages: dict[_CountedChannel, list[OpenOperation]] = {}
    for waiting in open_messages:
        channel = _channel_of(waiting)
        if channel in unequal:
            messages.setdefault(channel, []).append(waiting)
    found = []
    for part in connected(unequal, lambda channel: channel.ends):
        for channels, deviating in _by_departed(part, unequal, balance):
            mine = tuple(one for channel in channels for one in messages.get(channel, ()))
            if mine:
                ends = frozenset(rank for channel in channels for rank in channel.ends)
                found.append(UnmatchedMessages(mine, ends, deviating))
    return found


def _by_departed(
    part: Sequence[_CountedChannel],
    unequal: Mapping[_CountedChannel, tuple[int, ...]],
    balance: _Balance,
) -> list[tuple[Sequence[_CountedChannel], int | None]]:
    """Channels that share ranks, by the rank that departed: several may have from their peers.

    What earlier rounds tell comes first.
    """
    uneven = {channel: balance.uneven_end(channel) for channel in part}
    ranks = sorted({rank for rank in uneven.values() if rank is not None})
    odd = {rank for channel in part for rank in unequal[channel]}
    if ranks and odd and odd.isdisjoint(ranks):
        return [(part, None)]  # Rounds tell of one, and its messages to and fro of another.
    if odd:
        ranks = []
    # A channel that does not tell is that of the one of these ranks which is an end of it: what it
    # did in another group instead.
    of_ranks = {c: {uneven[c]} & {*ranks} or {*ranks}.intersection(c.ends) for c in part}
    if not all(len(one) == 1 for one in of_ranks.values()):
        return [(part, _deviating(part, [unequal[channel] for channel in part]))]
    return [([c for c in part if rank in of_ranks[c]], rank) for rank in ranks]


def find_messages_after_the_last(
    waits: OpenOperations, group_table: GroupTable, lookup: CallLookup
) -> list[UnmatchedMessages]:
    """Unfinished messages whose other end has come to a collective behind all of the channel."""
    open_messages, balance = _read_messages(waits, group_table, lookup)
    if balance is None:
        return []
    return [
        UnmatchedMessages((waiting,), frozenset(channel.ends), None)
        for waiting in open_messages
        if balance.is_after_the_last(channel := _channel_of(waiting))
    ][:1]


def _read_messages(
    waits: OpenOperations, group_table: GroupTable, lookup: CallLookup
) -> tuple[list[OpenOperation], _Balance | None]:
    """Unfinished messages, and the counts of their channels; None without any, or in large jobs."""
    open_messages = [waiting for waiting in waits.operations.values() if _has_named_ends(waiting)]
    groups = {waiting.key[0]: waiting.group for waiting in open_messages}
    if not open_messages or any(len(group.members) > COMPARED_MEMBERS for group in groups.values()):
        return open_messages, None
    ranks = sorted({rank for group in groups.values() for rank in group.members})
    lookup.prefetch(ranks)
    histories = {
        rank: _read(rank, entries, group_table)
        for rank in ranks
        if (entries := lookup.entries(rank)) is not None
    }
    return open_messages, _Balance(histories, group_table)


def _has_named_ends(waiting: OpenOperation) -> bool:
    return (
        waiting.seq is None
        and waiting.peer is not None
        and not (waiting.explained or waiting.any_source or waiting.group.doubtful)
    )


def _channel_of(waiting: OpenOperation) -> _CountedChannel:
    ((rank, pending),) = waiting.waiters.items()
    assert waiting.peer is not None
    ends = (rank, waiting.peer) if op_of(waiting.op).sends else (waiting.peer, rank)
    return _CountedChannel(waiting.key[0], *ends, pending.tag)


def _read(rank: int, entries: Entries, group_table: GroupTable) -> _History:
    """Operations that a rank has issued from the thread that issues its messages."""
    history = _History()
    places: dict[str, int] = {}
    uncounted = set()
    for place, group in enumerate(group_table.groups):
        progress = group.progress.get(rank)
        if progress is None or progress.part is None or group.doubtful or group.misnamed:
            continue
        places[progress.part.name] = place
        if progress.part.counted:
            history.counted.add(place)
        elif progress.part.active_only:
            uncounted.add(place)
    group_at = np.array([places.get(g.name, ABSENT) for g in entries.group_names])[entries.group]
    halves = np.array([bool(op_of(one.op).half) for one in entries.operations])
    messages = np.flatnonzero(halves[entries.operation] & (group_at != ABSENT))
    threads = {
        thread_of(entries, int(row))
        for row in messages[np.unique(entries.thread[messages], return_index=True)[1]]
    }
    if len(threads) != 1 or not uncounted.isdisjoint(group_at[messages].tolist()):
        return _History()  # What has finished was left out, so nothing can be counted.
    keys = (
        group_at[messages].astype(np.int64) * len(entries.operations) + entries.operation[messages]
    )
    for key in np.unique(keys).tolist():
        place, number = divmod(key, len(entries.operations))
        one, members = entries.operations[number], group_table.groups[place].members
        if not (0 <= one.src < len(members) and 0 <= one.dst < len(members)):
            # Nobody knows from whom it took.
            return _History()
        channel = _CountedChannel(place, members[one.src], members[one.dst], one.tag)
        history.channels[channel] = messages[keys == key]
    collective = np.flatnonzero(~entries.is_p2p & (entries.seq >= 0) & (group_at != ABSENT))
    for row in collective.tolist():
        if thread_of(entries, row) in threads:
            mark = int(group_at[row]), int(entries.seq[row])
            history.marks[mark] = row
            history.kinds[mark] = mark[0], int(entries.operation[row]), int(entries.argument[row])
    return history


class _Balance:
    """Counts of both ends of channels, at the collectives that both have issued."""

    def __init__(self, histories: Mapping[int, _History], group_table: GroupTable) -> None:
        self._histories = histories
        self._groups = group_table.groups

    @cached_property
    def channels(self) -> list[_CountedChannel]:
        return sorted({c for one in self._histories.values() for c in one.channels})

    def odd_ends(self, channel: _CountedChannel) -> tuple[int, ...] | None:
        """The ends whose counts are not those of earlier rounds; None where the counts agree."""
        sender, receiver = (self._histories.get(rank) for rank in channel.ends)
        if sender is None or receiver is None:
            return None
        rows = [one.channels.get(channel, _NOTHING) for one in (sender, receiver)]
        marks = _common(sender.marks, receiver.marks)
        counts = [
            tuple(
                _up_to(mine, one, mark) for mine, one in zip(rows, (sender, receiver), strict=True)
            )
            for mark in marks
        ]
        counted = channel.group in sender.counted & receiver.counted
        if counted:
            counts.insert(0, (0, 0))
        if len(counts) < 2:
            return None
        usual = counts[0][0] - counts[0][1]
        differs = [sent - taken != usual for sent, taken in counts]
        if not differs[-1] or not self._all_came(marks[-1]):
            return None
        if len(rows[0]) - len(rows[1]) == usual:
            return None  # The other half came behind the collective: nothing lacks, the order does.
        at = differs.index(True)
        if counted and at == 1 and len(marks) > 1 and not self._crosses_alone(channel, marks[0]):
            # Messages that cross each round's collective, perhaps.
            return None
        siblings = self._counts_between_others(channel, len(marks))
        known = [
            tuple(_up_to(mine, one, mark) for mark in marks) in siblings
            for mine, one in zip(rows, (sender, receiver), strict=True)
        ]
        if known[0] != known[1]:
            # A round may be shorter than those before it, for all.
            return (channel.ends[known.index(False)],)
        odd = []
        for end, history in enumerate((sender, receiver)):
            kinds = [None] * (len(counts) - len(marks)) + [history.kinds[mark] for mark in marks]
            rounds = [
                (kind, count[end] - earlier[end])
                for kind, (earlier, count) in zip(kinds[1:], pairwise(counts), strict=True)
            ]
            # Up to the same collective of earlier rounds.
            usual_counts = [own for kind, own in rounds[: at - 1] if kind == rounds[at - 1][0]]
            # A program may have more of them from round to round, and then nothing is usual.
            steady = len(usual_counts) >= KNOWN_ROUNDS and len(set(usual_counts)) == 1
            if steady and rounds[at - 1][1] not in usual_counts:
                odd.append(channel.ends[end])
        return tuple(odd)

    def _counts_between_others(self, channel: _CountedChannel, rounds: int) -> set[tuple[int, ...]]:
        """Counts of other channels where both of their ends agree, at as many collectives.

        Of the group's, and of those between the same places of groups of as many.
        """
        place = self._place_in_group(channel)
        found = set()
        for other in self.channels:
            if {*other.ends} != {*channel.ends} and (
                other.group == channel.group or self._place_in_group(other) == place
            ):
                ends = self._ends_of(other)
                marks = _common(ends[0].marks, ends[1].marks)[:rounds]
                counts = {
                    tuple(_up_to(one.channels.get(other, _NOTHING), one, mark) for mark in marks)
                    for one in ends
                }
                found |= counts if len(counts) == 1 else set()
        # Those of one round may be as many by accident.
        return {one for one in found if len(one) == rounds > 1 and 0 < one[0]}

    def _place_in_group(self, channel: _CountedChannel) -> tuple[int, ...]:
        members = self._groups[channel.group].members
        return len(members), channel.tag, *map(members.index, channel.ends)

    def uneven_end(self, channel: _CountedChannel) -> int | None:
        """The end whose messages are not as many each way, or on each channel, as the other's are.

        Up to the last collective of both.  None where both ends are alike in that, where the even
        one has the other for its only peer, where all that the two exchange is unequal (who has
        left out a whole exchange stays even), or where others exchange unevenly by right.
        """
        ends = self._ends_of(channel)
        marks = _common(ends[0].marks, ends[1].marks)
        if not marks or not all(channel.group in one.counted for one in ends):
            return None
        if channel.group in self._uneven_by_right:
            return None
        counts = [
            {
                other: _up_to(rows, one, marks[-1])
                for other, rows in one.channels.items()
                if other.group == channel.group
            }
            for one in ends
        ]
        paired = [_are_paired(mine) for mine in counts]
        # Who has one peer alone is paired by that one's fault as well.
        if sum(paired) == 1 and len({frozenset(c.ends) for c in counts[paired.index(True)]}) > 1:
            return channel.ends[paired.index(False)]
        even, uneven = sorted(
            zip(channel.ends, counts, strict=True), key=lambda o: len({*o[1].values()})
        )
        shared = [c for c in even[1] if {*c.ends} == {*channel.ends}]
        peers = {rank for c in even[1] for rank in c.ends} - {even[0]}
        if len({*even[1].values()}) != 1 or len({*uneven[1].values()}) < 2 or len(peers) < 2:
            return None
        all_unequal = all(even[1][c] != uneven[1].get(c, 0) for c in shared)
        return None if all_unequal else uneven[0]

    @cached_property
    def _uneven_by_right(self) -> set[int]:
        """Groups in which some two agree on how much they exchange, and that it is not even."""
        counts: dict[_CountedChannel, int | None] = {}
        for channel in self.channels:
            ends = self._ends_of(channel)
            if all(channel.group in one.counted for one in ends):
                both = {len(one.channels.get(channel, _NOTHING)) for one in ends}
                counts[channel] = both.pop() if len(both) == 1 else None
        return {
            channel.group
            for channel, count in counts.items()
            if count is not None
            and (back := counts.get(_reversed(channel), 0)) is not None
            and back != count
        }

    def is_after_the_last(self, channel: _CountedChannel) -> bool:
        """True if one end has done all until a collective, and the other, not there yet, more.

        Up to the last collective of both the counts agree, and no message of the group between
        ranks that have come to that one crosses it.
        """
        ends = self._ends_of(channel)
        rows = [one.channels.get(channel, _NOTHING) for one in ends]
        marks = _common(ends[0].marks, ends[1].marks)
        if not all(channel.group in one.counted for one in ends) or any(
            len({_up_to(mine, one, mark) for mine, one in zip(rows, ends, strict=True)}) > 1
            for mark in marks
        ):
            return False
        for at, further in enumerate(ends):
            place = further.marks[marks[-1]] if marks else ABSENT
            left = [mark for mark, row in further.marks.items() if row > place]
            mark = min(left, key=further.marks.__getitem__, default=None)
            if (
                mark is not None
                and channel.ends[1 - at] in self._groups[mark[0]].members
                and _up_to(rows[at], further, mark) < len(rows[1 - at])
                and self._keep_within(channel.group, mark)
            ):
                return True
        return False

    def _keep_within(self, group: int, mark: _Mark) -> bool:
        """True if messages between ranks that have come to a collective are even there."""
        even = []
        for channel in self.channels:
            ends = self._ends_of(channel)
            if channel.group == group and all(mark in one.marks for one in ends):
                counts = {_up_to(one.channels.get(channel, _NOTHING), one, mark) for one in ends}
                even.append(len(counts) == 1)
        return bool(even) and all(even)

    def _ends_of(self, channel: _CountedChannel) -> list[_History]:
        return [self._histories.get(rank, _History()) for rank in channel.ends]

    def _crosses_alone(self, channel: _CountedChannel, mark: _Mark) -> bool:
        """True if the group's channels between other ranks are even at that first collective.

        Messages that cross a collective of the program cross it between all ranks.
        """
        others = {
            other
            for history in self._histories.values()
            for other in history.channels
            if other.group == channel.group and set(other.ends).isdisjoint(channel.ends)
        }
        if len(others) < EVEN_CHANNELS:
            return False
        for other in others:
            counts = []
            for rank in other.ends:
                history = self._histories.get(rank)
                if history is None or mark not in history.marks:
                    return False
                counts.append(_up_to(history.channels.get(other, _NOTHING), history, mark))
            if counts[0] != counts[1]:
                return False
        return True

    def _all_came(self, mark: _Mark) -> bool:
        """True if no member is known not to have entered a collective."""
        place, seq = mark
        group: ResolvedGroup = self._groups[place]
        return all(one.has_entered(seq) is not False for one in group.progress.values())


def _reversed(channel: _CountedChannel) -> _CountedChannel:
    return channel._replace(sender=channel.receiver, receiver=channel.sender)


def _are_paired(counts: Mapping[_CountedChannel, int]) -> bool:
    """True if one rank has as many messages to each peer as from it."""
    back = {_reversed(channel): count for channel, count in counts.items()}
    return all(back.get(c, 0) == count for c, count in counts.items())


def _up_to(rows: Int64, history: _History, mark: _Mark) -> int:
    """Number of a rank's entries before a collective of its own."""
    return int(np.searchsorted(rows, history.marks[mark]))


def _common(mine: Mapping[_Mark, int], theirs: Mapping[_Mark, int]) -> list[_Mark]:
    """Collectives that both have issued, in the order of both."""
    found: list[_Mark] = []
    for mark in sorted(mine.keys() & theirs.keys(), key=mine.__getitem__):
        if not found or theirs[mark] > theirs[found[-1]]:
            found.append(mark)
    return found


def _deviating(channels: Sequence[_CountedChannel], odd: Sequence[tuple[int, ...]]) -> int | None:
    """The one rank that is an end of all channels, or else the one that alone counts oddly."""
    common = set.intersection(*(set(channel.ends) for channel in channels))
    if len(common) == 1:
        return common.pop()
    unlike = {rank for ranks in odd for rank in ranks} & (common or {r for o in odd for r in o})
    return unlike.pop() if len(unlike) == 1 else None
