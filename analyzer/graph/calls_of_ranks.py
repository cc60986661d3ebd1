"""Calls of ranks, and what they wait for, in the words of the graph."""

from __future__ import annotations

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.thresholds import SMALL
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup, plain_call
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import Pending


class CallsOfRanks:
    """Calls that the graph shows: of few ranks with all their arguments, of many in short."""

    def __init__(
        self, merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup
    ) -> None:
        self.lookup = lookup
        self.small = len(merged.ranks) <= SMALL
        self._merged = merged
        self._group_table = group_table
        self._calls: dict[tuple[int, int], Call] = {}
        self._on: dict[tuple[int, bool], tuple[int, ...]] = {}

    def call(self, rank: int, pending: Pending, group: ProcessGroup, full: bool) -> Call:
        if not full:
            return plain_call(rank, pending, group)
        if pending.index == ABSENT:
            return self.lookup.pending(rank, pending, group)
        key = rank, pending.index
        if key not in self._calls:
            self._calls[key] = self.lookup.pending(rank, pending, group)
        return self._calls[key]

    def wait(self, rank: int, waiting: OpenOperation, waits: OpenOperations, full: bool) -> Wait:
        call = self.call(rank, waiting.waiters[rank], waiting.group.group, full)
        if rank in waits.stopped and waiting.finished:
            return Wait(call, WaitKind.DEVICE, ())
        on = self._waited_for(rank, waiting)
        if waiting.seq is None:
            if waiting.peer is not None and not on:
                return Wait(call, WaitKind.STALLED, (waiting.peer,))
            return Wait(call, WaitKind.PEER, on)
        if not on:
            return Wait(call, WaitKind.STALLED, ())
        return Wait(call, WaitKind.NOT_ENTERED, on)

    def _waited_for(self, rank: int, waiting: OpenOperation) -> tuple[int, ...]:
        """The ranks that a wait is for; one tuple for all waiters where they are many."""
        count = len(waiting.absent) + len(waiting.behind) + len(waiting.unknown)
        if count <= SMALL:
            return tuple(sorted(set(waiting.blockers(rank))))
        key = id(waiting), rank in waiting.leaders
        if key not in self._on:
            self._on[key] = tuple(sorted(set(waiting.blockers(rank))))
        return self._on[key]

    def last(self, rank: int) -> Call | None:
        """The rank's last call; None where its file breaks off, behind which there may be later."""
        summary = self._merged.ranks.get(rank)
        if summary is None or summary.truncated:
            return None
        return self.at(rank, summary.last)

    def at(self, rank: int, index: int | None) -> Call | None:
        """The call of an entry of the rank's ring."""
        summary = self._merged.ranks.get(rank)
        entries = self.lookup.entries(rank) if summary is not None else None
        if summary is None or entries is None or index is None or index == ABSENT:
            return None
        name = entries.group_at(index)
        for number, part in enumerate(summary.parts):
            if part.name == name:
                group = self._group_table.groups[self._group_table.places[rank, number]]
                open_ = {pending.index for pending in summary.pending}
                return self.lookup.at(rank, index, group.group, completed=index not in open_)
        return None
