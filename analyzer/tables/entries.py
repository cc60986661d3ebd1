"""The entries of every rank side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from hanglab.analyzer.flight_recorder import Loaded
from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Bool,
    Entries,
    Frame,
    Int64,
    Operation,
    RankDump,
    State,
)
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.tables.calls import Calls, GroupOfCalls, collect_calls
from hanglab.analyzer.tables.mismatches import mismatch
from hanglab.analyzer.tables.missing_answers import EntryFilters, notes_on
from hanglab.analyzer.verdict import Unusable

#: Rows with a mismatch that are shown, from the earliest, as torchfrtrace does.
MISMATCH_CAP = 10


class Absent(str, Enum):
    """The reason that a rank has no call in a row."""

    NOT_ENTERED = "not entered"  # a member whose buffer ends before this number
    NOT_RECORDED = "not recorded"  # its buffer begins later, or holds unfinished calls only
    NO_DUMP = "no dump"  # a member that left none
    UNKNOWN = "unknown"  # whether it is a member, or came so far, its dump does not tell
    OTHERS = ""  # not a member, or nothing that others have a part in


@dataclass(frozen=True)
class CallCell:
    """One rank's call.  ``stack`` is an index into the table's stacks, None without one."""

    operation: Operation
    arguments: Arguments
    state: State
    finished: bool
    deviates: bool
    stack: int | None


@dataclass(frozen=True)
class Row:
    """Calls that belong together; ``seq`` is None for a send or receive.

    A rank that has no part in it has no cell.
    """

    group: GroupOfCalls
    seq: int | None
    difference: Difference | None
    cells: dict[int, CallCell | Absent]


@dataclass
class EntriesTable:
    """``ranks`` are the columns; ``stacks`` are filled only where they were asked for.

    Columns are the ranks that have a dump, and of those that were asked for the members
    of known groups without one.
    """

    ranks: list[int]
    rows: list[Row] = field(default_factory=list)
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    #: Rows with a mismatch that the cap left out.
    left_out: int = 0
    #: Sentences on what was asked for and is not in the dumps.
    notes: list[str] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)


def entries_table(
    loaded: Loaded,
    *,
    ranks: Collection[int] | None = None,
    groups: Collection[str] | None = None,
    seqs: tuple[int, int] | None = None,
    stacks: bool = False,
    only_unfinished: bool = False,
    mismatch_cap: int | None = MISMATCH_CAP,
) -> EntriesTable:
    """Rows by group and sequence number, ordered by time; one cell per rank.

    ``ranks``: only these columns.  ``groups``: only groups of these names or
    descriptions.  ``seqs``: only sequence numbers from the first to the second,
    both included.  ``only_unfinished``: only rows in which somebody's call is
    unfinished.  ``mismatch_cap``: at most so many rows with a mismatch, None for
    all.  Mismatches are judged over all ranks of ``loaded``, shown or not.
    """
    calls = collect_calls(loaded.dumps)
    shown = [dump for dump in loaded.dumps if ranks is None or dump.rank in ranks]
    there = [dump.rank for dump in shown]
    members = {rank for group in calls.groups for rank in group.members or ()}
    lost = sorted((members & set(ranks or ())) - {dump.rank for dump in loaded.dumps})
    table = EntriesTable(sorted([*there, *lost]), unusable=loaded.unusable)
    wanted = _wanted(calls, there, groups, seqs, only_unfinished)
    order = np.argsort(calls.row[wanted], kind="stable")
    numbers = np.flatnonzero(wanted)[order]
    bounds = np.flatnonzero(np.diff(calls.row[numbers])) + 1
    view = _View(calls, shown, lost)
    stack_places: dict[int, int] = {}
    left = mismatch_cap
    for piece in np.split(numbers, bounds) if len(numbers) else ():
        difference, deviating = view.differences(piece)
        if difference is not None and left is not None:
            if left <= 0:
                table.left_out += 1
                continue
            left -= 1
        table.rows.append(view.row(piece, difference, deviating, stack_places if stacks else None))
    table.stacks = [calls.stacks[number] for number in stack_places]
    asked = EntryFilters(ranks, groups, seqs, stacks, only_unfinished)
    empty = not table.rows and not table.left_out
    table.notes = notes_on(asked, loaded.dumps, calls, empty=empty)
    return table


def _wanted(
    calls: Calls,
    columns: Sequence[int],
    groups: Collection[str] | None,
    seqs: tuple[int, int] | None,
    only_unfinished: bool,
) -> Bool:
    """Calls in all rows that are to be shown, those of hidden ranks included."""
    wanted = np.ones(len(calls), dtype=np.bool_)
    if groups is not None:
        fits = [bool({g.name, g.description} & set(groups)) for g in calls.groups]
        wanted &= np.array(fits, dtype=np.bool_)[calls.group]
    if seqs is not None:
        wanted &= (calls.seq >= seqs[0]) & (calls.seq <= seqs[1])
    visible = np.isin(calls.rank, columns)
    if only_unfinished:
        visible &= ~calls.finished
    rows = np.zeros(int(calls.row.max()) + 1 if len(calls) else 0, dtype=np.bool_)
    rows[calls.row[visible]] = True
    return wanted & rows[calls.row]


def _spans(calls: Calls) -> dict[tuple[int, int], tuple[int, int]]:
    """(rank, group) -> the least and the greatest number of its collectives there."""
    rows = np.flatnonzero(~calls.is_p2p & (calls.seq != ABSENT))
    if not len(rows):
        return {}
    rows = rows[np.lexsort((calls.seq[rows], calls.group[rows], calls.rank[rows]))]
    ranks, groups, seqs = calls.rank[rows], calls.group[rows], calls.seq[rows]
    firsts = np.flatnonzero((np.diff(ranks) != 0) | (np.diff(groups) != 0)) + 1
    begins = np.concatenate(([0], firsts))
    ends = np.concatenate((firsts, [len(rows)])) - 1
    return {
        (int(ranks[begin]), int(groups[begin])): (int(seqs[begin]), int(seqs[end]))
        for begin, end in zip(begins, ends, strict=True)
    }


def _counts_messages(entries: Entries, group: str) -> bool:
    """True if the number of what a group enqueued last may be that of a send or receive."""
    messages = entries.in_group(group) & (entries.is_p2p | (entries.p2p_seq > 0))
    return entries.counts_p2p or bool(messages.any())


class _View:
    """Rows of the table out of the columns of the calls."""

    def __init__(self, calls: Calls, shown: Sequence[RankDump], lost: Sequence[int] = ()) -> None:
        self.calls = calls
        self.shown = shown
        self.lost = lost
        self._by_rank = {dump.rank: dump for dump in shown}
        self._of_group: dict[int, Sequence[RankDump]] = {}
        self._spans = _spans(calls)

    def differences(self, piece: Int64) -> tuple[Difference | None, list[bool]]:
        calls = self.calls
        if len(piece) == 1:
            return None, [False]
        kinds = [(calls.operation_at(n), calls.arguments_at(n)) for n in piece.tolist()]
        return mismatch(kinds)

    def row(
        self,
        piece: Int64,
        difference: Difference | None,
        deviating: list[bool],
        stack_places: dict[int, int] | None,
    ) -> Row:
        calls = self.calls
        first = int(piece[0])
        number = int(calls.group[first])
        alone = bool(calls.is_p2p[first]) or calls.seq[first] == ABSENT
        seq = None if alone else int(calls.seq[first])
        flags = zip(piece.tolist(), deviating, strict=True)
        own = {int(calls.rank[n]): (n, flag) for n, flag in flags}
        cells: dict[int, CallCell | Absent] = {}
        for dump in self._involved(own, number, seq):
            if dump.rank in own:
                n, flag = own[dump.rank]
                cells[dump.rank] = self._cell(n, flag, stack_places)
            elif (absent := self._absent(dump, number, seq)) is not Absent.OTHERS:
                cells[dump.rank] = absent
        members = calls.groups[number].members or ()
        for rank in self.lost:
            if seq is not None and rank in members:
                cells[rank] = Absent.NO_DUMP
        return Row(calls.groups[number], seq, difference, cells)

    def _involved(
        self, own: Mapping[int, object], number: int, seq: int | None
    ) -> Sequence[RankDump]:
        """Dumps that may have a cell: in a job of many groups few of all."""
        if seq is None:
            return [self._by_rank[rank] for rank in sorted(own) if rank in self._by_rank]
        if number not in self._of_group:
            members = self.calls.groups[number].members
            self._of_group[number] = [
                dump
                for dump in self.shown
                if members is None or dump.rank in members or (dump.rank, number) in self._spans
            ]
        return self._of_group[number]

    def _cell(self, n: int, deviates: bool, stack_places: dict[int, int] | None) -> CallCell:
        calls = self.calls
        stack = int(calls.stack[n])
        place: int | None = None
        if stack != ABSENT and stack_places is not None:
            place = stack_places.setdefault(stack, len(stack_places))
        return CallCell(
            operation=calls.operation_at(n),
            arguments=calls.arguments_at(n),
            state=State(int(calls.state[n])),
            finished=bool(calls.finished[n]),
            deviates=deviates,
            stack=place,
        )

    def _absent(self, dump: RankDump, number: int, seq: int | None) -> Absent:
        group = self.calls.groups[number]
        span = self._spans.get((dump.rank, number))
        if seq is None:
            return Absent.OTHERS
        if span is None and group.members is None:
            # Nobody lists the members: a rank without entries of the group may be none.
            return Absent.UNKNOWN if self._may_belong(dump, group) else Absent.OTHERS
        if span is None and dump.rank not in (group.members or ()):
            return Absent.OTHERS
        if span is not None and seq <= span[1]:
            return Absent.NOT_RECORDED
        known = [pg_id for pg_id, name in dump.names.items() if name == group.name]
        enqueued = [dump.status[pg_id].enqueued for pg_id in known if pg_id in dump.status]
        numbered = dump.entries is None or not _counts_messages(dump.entries, group.name)
        if numbered and any(value is not None and value >= seq for value in enqueued):
            return Absent.NOT_RECORDED
        if dump.damage or dump.boundary_only:
            return Absent.UNKNOWN
        if span is None and dump.partial:
            return Absent.NOT_RECORDED
        if dump.entries is None and not dump.status and group.name not in dump.members:
            return Absent.UNKNOWN
        return Absent.NOT_ENTERED

    def _may_belong(self, dump: RankDump, group: GroupOfCalls) -> bool:
        """True if a rank without entries of the group may be a member that has not come there."""
        return dump.partial or bool(dump.damage) or dump.entries is None
