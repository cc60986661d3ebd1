"""One rank's dump, boiled down to what matching needs of it.

A summary is small (a few kilobytes for 2,000 entries), can be pickled, and
holds no stacks: whoever is implicated is read in full a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.flight_recorder.columns import (
    ABSENT,
    Arguments,
    Bool,
    Entries,
    GroupStatus,
    Int32,
    Int64,
    RankDump,
    State,
)
from hanglab.analyzer.matching.completion import Completion, complete, in_unclosed_batch
from hanglab.analyzer.matching.signatures import UInt64, signature_table
from hanglab.analyzer.matching.thresholds import (
    DENSE_NUMBERS,
    LONGEST_RUN,
    MESSAGE_RUNS,
    REMEMBERED_MEMBERS,
    UNFINISHED_BY_STATUS,
)
from hanglab.analyzer.worlds.activity import Activity, activity_of
from hanglab.recorder.case.backends import EMULATED_LIBRARY, backend_of
from hanglab.recorder.case.operations import op_of

#: Members of a group: a range where they are evenly spaced, which they nearly always are.
Members = range | tuple[int, ...]

#: In :attr:`Part.codes`: no entry has this sequence number.
GAP = -1
_COMPACT: dict[int, tuple[tuple[int, ...], Members]] = {}


@dataclass
class Pending:
    """An operation that has not finished."""

    #: Index of its entry in the dump.
    index: int
    #: Position in the rank's own order; the same for all members of a batch.
    order: int
    #: Index into :attr:`Summary.parts`.
    part: int
    #: None for point-to-point.
    seq: int | None
    op: str
    #: Ranks within the group, ABSENT where there is none.
    src: int = ABSENT
    dst: int = ABSENT
    tag: int = 0
    #: Which one it is among the entries of its channel, from 0.
    position: int = 0
    #: The rank has started it and does not wait for it.
    posted: bool = False
    #: The thread that issued it, "" where the dump does not tell.
    thread: str = ""
    #: Its thread is known to stand in it, or in a wait for it.
    held: bool = False
    #: An operation that the rank issued after it has finished: this one held up neither the host
    #: nor the device by then, and whether the host waits for it now is not known.
    overtaken: bool = False
    #: Its device has begun it; None where the dump does not tell.
    started: bool | None = None
    #: It lies on a stream of a device, and not in a queue of the host's.
    on_device: bool = False
    #: When the rank issued it, by its host's clock.
    created_ns: int = ABSENT


class MessageArguments(NamedTuple):
    """Arguments that have to be equal on both ends of a message; no dtype where it is not known."""

    numel: int
    dtype: str


@dataclass
class P2PChannel:
    """Sends, or receives, of one rank with one peer of one group, as far as the ring has them.

    Of one tag; the receives from any source are a channel of their own.
    """

    src: int
    dst: int
    sends: bool
    posted: int
    done: int
    #: Positions of those that have not finished.
    open: tuple[int, ...] = ()
    #: Positions of those of them that the rank waits for, as far as is known.
    awaited: tuple[int, ...] = ()
    tag: int = 0
    #: Arguments of the first messages, each with how many in a row have them.
    arguments: tuple[tuple[int, MessageArguments], ...] = ()

    def holds(self, pending: Pending, position: int) -> bool:
        """True if ``pending`` is the message at ``position``."""
        return (
            (pending.seq, pending.src, pending.dst) == (None, self.src, self.dst)
            and (op_of(pending.op).sends, pending.tag) == (self.sends, self.tag)
            and pending.position == position
        )


@dataclass
class GroupSummary:
    """One group, as one rank's dump has it."""

    name: str
    description: str = ""
    members: Members | None = None
    pg_id: int = ABSENT
    #: Sequence number of ``codes[0]``.
    base: int = 0
    #: How many sequence numbers there are from ``base`` to the last entry.
    length: int = 0
    #: Index into :attr:`Summary.table` per sequence number, GAP without entry; None
    #: once merging has moved it into the group's histories.
    codes: Int32 | None = None
    #: Highest collective sequence number that the rank entered; None if not known.
    entered: int | None = None
    #: Sequence numbers of collectives that have not finished.
    unfinished: tuple[int, ...] = ()
    channels: list[P2PChannel] = field(default_factory=list)
    #: Some operation of the group is gloo's.
    gloo: bool = False
    #: Point-to-point operations were seen, so the group's status may count them.
    p2p: bool = False
    #: Below ``base`` the ring may have dropped operations that had not finished.
    history_truncated: bool = False
    #: The channels are known from their first operation on.
    counted: bool = False
    #: Operations were issued that the ring does not show (point-to-point on gloo).
    hidden: bool = False
    #: Finished operations were left out of the dump.
    active_only: bool = False
    #: The thread that issued all collectives of the group, "" where there is no such one.
    thread: str = ""
    #: How many members the group has by the shapes of its operations; 0 where none tells.
    size: int = 0
    #: When the rank issued the first and the last operation that its dump shows.
    first_ns: int = ABSENT
    last_ns: int = ABSENT
    #: A group of the same name was formed later.
    former: bool = False


@dataclass
class RankSummary:
    """One rank.  ``table`` has shape ``(k, 5)``, see :func:`signatures.signature_table`."""

    rank: int
    #: Some operation of it is gloo's.
    gloo: bool = False
    #: No GPU was behind its groups.
    emulated: bool = False
    #: The ring still holds the first operation that the rank ever made.
    whole: bool = False
    #: False where the dump can tell nothing about operations.
    informative: bool = True
    activity: Activity = Activity()
    #: The dump has group statuses at all (formats before 2.4 do not).
    has_status: bool = False
    #: The file breaks off, so operations may follow that nobody can read.
    truncated: bool = False
    parts: list[GroupSummary] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    #: Status by pg_id that no entry ties to a name: (enqueued, completed).
    unassigned_status: dict[int, tuple[int, int]] = field(default_factory=dict)
    table: UInt64 = field(default_factory=lambda: np.zeros((0, 5), dtype=np.uint64))
    #: The ring may have dropped operations that had not finished.
    history_truncated: bool = False
    #: The thread that issued most of its operations, "" where the dump does not tell.
    thread: str = ""
    #: Index of the rank's last entry, ABSENT without entries.
    last: int = ABSENT
    #: Ranks that the dump names without saying in which group.
    nameless: Members = ()
    #: The dump has neither an entry nor a status.
    empty: bool = False
    #: Sends and receives leave no entry (gloo, without what the Python boundary knows).
    silent_p2p: bool = False
    #: See :attr:`RankDump.former`.
    former: dict[str, str] = field(default_factory=dict)


def compact(ranks: Iterable[int]) -> Members:
    """Members in their shortest form; the order, which numbers ranks in the group, is kept."""
    given = ranks if type(ranks) is tuple else tuple(ranks)
    known = _COMPACT.get(id(given))
    if known is None:
        if len(_COMPACT) >= REMEMBERED_MEMBERS:
            _COMPACT.clear()
        # The loader reads equal lists once; what is held keeps its identity.
        known = _COMPACT[id(given)] = given, _compacted(given)
    return known[1]


def _compacted(given: tuple[int, ...]) -> Members:
    if len(given) > 1:
        step = given[1] - given[0]
        if step and given == tuple(range(given[0], given[-1] + (1 if step > 0 else -1), step)):
            return range(given[0], given[-1] + (1 if step > 0 else -1), step)
    return given


def summarise(dump: RankDump) -> RankSummary:
    """Boil one rank's dump down.  Never raises for strange contents."""
    entries = dump.entries
    if entries is not None and len(entries) == 0:
        entries = None
    members = _members_of(dump)
    truncated = bool(dump.damage)
    # A group gets its status with its first operation: without any, none was made.
    has_status = bool(dump.status) or not (truncated or _before_status(dump.version))
    summary = RankSummary(rank=dump.rank, has_status=has_status, truncated=truncated)
    summary.nameless = compact(dump.nameless)
    summary.former = dict(dump.former)
    summary.empty = entries is None and not dump.status
    summary.activity = activity_of(dump)
    summary.emulated = dump.library_version == EMULATED_LIBRARY
    named: dict[str, GroupSummary] = {}

    def part_of(name: str, description: str = "") -> GroupSummary:
        part = named.get(name)
        if part is None:
            description = description or dump.descriptions.get(name, "")
            part = named[name] = GroupSummary(name, description, members.get(name))
            summary.parts.append(part)
        return part

    # Only gloo keeps a record of a group under no name.
    gloo = "" in dump.descriptions
    if entries is not None:
        _read_entries(entries, dump, summary, part_of)
        gloo = summary.gloo
    summary.silent_p2p = gloo and not (dump.sends_known or _has_boundary(dump))
    for name in members:
        part_of(name)
    if entries is None and not dump.status:
        # The recorder lists groups from their creation and statuses from the first
        # operation: a rank with the former alone has entered nothing yet.
        listed = bool(dump.members) or "" in dump.descriptions
        summary.informative = listed and not summary.truncated and not _before_status(dump.version)
        summary.whole = summary.informative
    tied = {part.pg_id for part in summary.parts if part.pg_id != ABSENT}
    for pg_id, name in dump.names.items():
        part = named.get(name)
        if part is not None and part.pg_id == ABSENT and pg_id not in tied:
            part.pg_id = pg_id
    for pg_id, status in dump.status.items():
        if pg_id not in tied:
            summary.unassigned_status[pg_id] = (status.enqueued or 0, status.completed or 0)
    if summary.whole or (summary.has_status and not summary.unassigned_status):
        # Neither an entry nor a status that could be the group's: it was never used.
        for part in summary.parts:
            if part.pg_id == ABSENT:
                part.entered = 0
    return summary


def _has_boundary(dump: RankDump) -> bool:
    """True if the Python boundary's sends and receives are among the entries."""
    entries = dump.entries
    added = entries is not None and bool((entries.record_id < 0).any())
    return bool(dump.extra.get("boundary")) or added


def _before_status(version: str) -> bool:
    """True if a format has no statuses: 2.4 brought them."""
    try:
        major, minor = (int(number) for number in version.split(".")[:2])
    except ValueError:
        return True
    return (major, minor) < (2, 4)


def _members_of(dump: RankDump) -> dict[str, Members]:
    """Global ranks per group name.

    Replica groups of torchft number their ranks from 0 again, while the file
    has the global rank: then the members are shifted to where the rank is.
    """
    default = next(
        (
            ranks
            for name, ranks in dump.members.items()
            if ranks and (name == "0" or dump.descriptions.get(name) == "default_pg")
        ),
        (),
    )
    shift = 0
    # The short test goes first: the lists of large jobs are long.
    if default and len(default) <= dump.rank and _starts_at_zero(default):
        shift = dump.rank // len(default) * len(default)
    found: dict[str, Members] = {}
    for name, ranks in dump.members.items():
        if not ranks:
            if name:
                found[name] = ()
            continue
        found[name] = compact(rank + shift for rank in ranks) if shift else compact(ranks)
    return found


def _starts_at_zero(ranks: tuple[int, ...]) -> bool:
    """True if these are the numbers from 0 on, each once."""
    return min(ranks) == 0 and max(ranks) == len(ranks) - 1


def _read_entries(entries: Entries, dump: RankDump, summary: RankSummary, part_of: Any) -> None:
    count = len(entries)
    by_name: dict[str, int] = {}
    to_part = np.zeros(len(entries.group_names), dtype=np.int32)
    for index, group in enumerate(entries.group_names):
        part_of(group.name, group.description)
        to_part[index] = by_name.setdefault(group.name, len(by_name))
    completion = complete(entries, dump, to_part[entries.group])
    part_index, p2p, done = completion.group, completion.p2p, completion.done
    summary.gloo = any(completion.gloo)
    known_ids = entries.record_id[entries.record_id >= 0]
    collectives = entries.seq[~p2p & (entries.seq >= 0)]
    summary.whole = (
        not summary.truncated
        and len(known_ids) > 0
        and int(known_ids[0]) == 0
        and int(known_ids[-1]) == len(known_ids) - 1
        # Numbered from the beginning, but a later one: the recorder was reset.
        and (not len(collectives) or int(collectives[0]) <= 1)
    )
    summary.last = count - 1
    summary.thread = _busiest_thread(entries)
    sparse, active_only = completion.sparse, completion.active_only
    codes, summary.table = _codes(entries)
    parts = summary.parts[: len(by_name)]
    boundary = _has_boundary(dump)
    for number, part in enumerate(parts):
        rows = np.flatnonzero(part_index == number)
        part.gloo = completion.gloo[number]
        part.p2p = completion.mixed[number]
        part.pg_id = completion.pg_ids[number]
        part.first_ns = int(entries.created_ns[rows[0]])
        part.last_ns = int(entries.created_ns[rows[-1]])
        part.active_only = active_only
        if not part.members:
            part.size = _size(entries, rows)
        collective = rows[~p2p[rows] & (entries.seq[rows] >= 0) & ~completion.undetermined[rows]]
        status = dump.status.get(part.pg_id)
        mine = codes[collective]
        # The end stands for a batch: without it, nobody knows what the number is.
        if active_only:
            mine[in_unclosed_batch(entries, collective, completion.ends)] = GAP
        _read_collectives(part, entries.seq[collective], mine, done[collective])
        part.thread = _only_thread(entries, collective)
        if not part.gloo:
            # The end of a batch has the number of its last member, which the ring may have dropped.
            begins = summary.whole or not completion.ends[rows[0]]
            part.counted = begins and int(entries.op_id[rows[0]]) == 1 and not active_only
            if part.p2p and not active_only:
                # A send or receive carries the number of the last collective before it.
                part.entered = max(part.entered or 0, int(entries.seq[rows].max()))
        if part.gloo:
            _read_gaps(part, entries, rows, collective, boundary)
        elif status is not None and not part.p2p:
            _extend(part, status.enqueued or 0, status.completed or 0)
        if not sparse and _may_have_lost(part):
            part.history_truncated = not _accounted(part, entries, rows, status, done)
    # The oldest entry that there is has not finished, so neither may older ones.
    if not (summary.whole or sparse or bool(done[0])):
        summary.history_truncated = not all(
            _accounted(
                part,
                entries,
                np.flatnonzero(part_index == number),
                dump.status.get(part.pg_id),
                done,
            )
            for number, part in enumerate(parts)
        )
    _read_pending(entries, summary, completion, dump)


def _extend(part: GroupSummary, enqueued: int, completed: int) -> None:
    """The status may tell of operations after the last entry (only active ones, a cut file)."""
    entered = part.entered or 0
    if enqueued > entered:
        part.entered = enqueued
        later = range(max(entered, completed) + 1, enqueued + 1)
        part.unfinished += tuple(later[-UNFINISHED_BY_STATUS:])


def _read_gaps(
    part: GroupSummary, entries: Entries, rows: Int64, collective: Int64, boundary: bool
) -> None:
    """Gloo numbers sends and receives too, and records none of them."""
    numbers = entries.op_id[rows]
    numbers, _ = _distinct(numbers[numbers > 0])
    gapless = len(numbers) > 0 and int(numbers[0]) == 1 and int(numbers[-1]) == len(numbers)
    part.counted = gapless
    if gapless and part.entered is None and (boundary or not part.hidden):
        # All that it ever did in the group is there, and it is point-to-point.
        part.entered = 0
    if not boundary and not part.p2p:
        given = collective[entries.op_id[collective] > 0]
        part.hidden = bool((entries.op_id[given] > entries.seq[given]).any())


def _size(entries: Entries, rows: Int64) -> int:
    """Number of members of the group, where what one gives is told beside what all give.

    Tensors of one operation are of one size on all members; 0 where accounts differ.
    """
    count = len(entries.arguments)
    kinds, _ = _distinct(entries.operation[rows].astype(np.int64) * count + entries.argument[rows])
    found: set[int] = set()
    for kind in kinds.tolist():
        operation, arguments = entries.operations[kind // count], entries.arguments[kind % count]
        mine = sum(prod(shape) for shape in arguments.input_sizes)
        all_of_it = sum(prod(shape) for shape in arguments.output_sizes)
        spec = op_of(operation.op)
        if spec.scatters:
            mine, all_of_it = all_of_it, mine
        elif not spec.gathers:
            continue
        if mine and all_of_it and all_of_it % mine == 0:
            found.add(all_of_it // mine)
    return found.pop() if len(found) == 1 else 0


def thread_of(entries: Entries, row: int) -> str:
    """The number of the thread; a dump has its name before it, the boundary has not."""
    number = int(entries.thread[row])
    return entries.threads[number].rpartition(" ")[2] if 0 <= number < len(entries.threads) else ""


def _busiest_thread(entries: Entries) -> str:
    known = entries.thread[entries.thread >= 0]
    if len(entries.threads) < 2 or not len(known):
        return thread_of(entries, 0)
    return entries.threads[int(np.bincount(known).argmax())].rpartition(" ")[2]


def _only_thread(entries: Entries, rows: Int64) -> str:
    """The thread that issued all of ``rows``, "" where there is no such one."""
    if not len(rows):
        return ""
    first = thread_of(entries, int(rows[0]))
    if bool((entries.thread[rows] == entries.thread[rows[0]]).all()):
        return first
    _, kept = np.unique(entries.thread[rows], return_index=True)
    return first if len({thread_of(entries, int(rows[at])) for at in kept}) == 1 else ""


def _may_have_lost(part: GroupSummary) -> bool:
    """True if the ring may have dropped collectives of the group that had not finished."""
    if part.length:
        return part.base > 1 and part.base in part.unfinished
    # Sends and receives tell of collectives that have no entry any more.
    return bool(part.entered)


def _accounted(
    part: GroupSummary,
    entries: Entries,
    rows: Int64,
    status: GroupStatus | None,
    done: Bool,
) -> bool:
    """True if the group's status proves that nothing older than its first entry is unfinished."""
    if part.counted:
        return True
    still_open = rows[~done[rows]]
    if not len(still_open):
        if part.length or not part.entered:
            return True
        return status is not None and status.enqueued == status.completed
    first = int(still_open[0])
    number = int((entries.p2p_seq if bool(entries.is_p2p[first]) else entries.seq)[first])
    if part.gloo or status is None:
        return number == 1 and not part.p2p
    completed = status.completed or 0
    if part.p2p:
        # It may be the number of either kind of operation.
        return completed == number - 1 != int(entries.seq[first])
    return completed >= number - 1


def _codes(entries: Entries) -> tuple[Int32, UInt64]:
    """Index of each entry's signature, and the table of signatures."""
    arguments, stacks = len(entries.arguments), len(entries.stacks) + 1
    key = (entries.operation.astype(np.int64) * arguments + entries.argument) * stacks
    key += entries.stack + 1
    found, codes = _distinct(key)
    keys = [
        (k // stacks // arguments, k // stacks % arguments, k % stacks - 1) for k in found.tolist()
    ]
    table = signature_table(entries.operations, entries.arguments, entries.stacks, keys)
    return codes.astype(np.int32), table


def _distinct(values: Int64) -> tuple[Int64, Int64]:
    """Sorted distinct values and the index of each value among them.

    As np.unique, which imports numpy.ma for it: 30 ms at the start of a command.
    """
    if len(values) and 0 <= int(values.min()) and int(values.max()) < DENSE_NUMBERS:
        there = np.zeros(int(values.max()) + 1, dtype=np.bool_)
        there[values] = True
        return np.flatnonzero(there), (np.cumsum(there) - 1)[values]
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.ones(len(values), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    indices = np.empty(len(values), dtype=np.int64)
    indices[order] = np.cumsum(first) - 1
    return ordered[first], indices


def _read_collectives(part: GroupSummary, seqs: Int64, codes: Int32, done: Bool) -> None:
    if not len(seqs):
        return
    if len(seqs) > 1 and not bool((np.diff(seqs) > 0).all()):
        # Several entries under one number are a batch: the last one stands for it,
        # since the ring may have dropped its beginning.
        order = np.argsort(seqs, kind="stable")
        seqs, codes, done = seqs[order], codes[order], done[order]
        last = np.append(seqs[1:] != seqs[:-1], True)
        firsts = np.flatnonzero(np.append(True, last[:-1]))
        done = np.logical_and.reduceat(done, firsts)
        seqs, codes = seqs[last], codes[last]
    part.entered = int(seqs[-1])
    part.unfinished = tuple(seqs[~done].tolist())
    if int(seqs[-1]) - int(seqs[0]) + 1 != len(seqs):
        near = seqs > seqs[-1] - LONGEST_RUN
        seqs, codes = seqs[near], codes[near]
    part.base = int(seqs[0])
    part.length = span = int(seqs[-1]) - part.base + 1
    if span == len(seqs):
        part.codes = np.ascontiguousarray(codes)
    else:
        part.codes = np.full(span, GAP, dtype=np.int32)
        part.codes[seqs - part.base] = codes


def _read_pending(
    entries: Entries, summary: RankSummary, completion: Completion, dump: RankDump
) -> None:
    part_index, p2p, ends = completion.group, completion.p2p, completion.ends
    done = completion.done
    positions: npt.NDArray[np.int64] = np.zeros(len(entries), dtype=np.int64)
    _read_channels(entries, summary, part_index, p2p & ~ends, done, positions, dump.posted)
    batches: dict[tuple[int, bool, int], int] = {}
    last_done = int(np.flatnonzero(done)[-1]) if done.any() else ABSENT
    begun = _begun(entries, part_index, p2p, ends)
    for index in np.flatnonzero(~done & ~completion.undetermined).tolist():
        operation = entries.operation_at(index)
        number, kind = int(part_index[index]), bool(p2p[index])
        if not kind and entries.seq[index] < 0:
            continue
        order = index
        counter = int(entries.p2p_seq[index]) if kind else int(entries.seq[index])
        if counter > 0:
            order = batches.setdefault((number, kind, counter), index)
        if ends[index] and order != index:
            # Its members stand for it.
            continue
        summary.pending.append(
            Pending(
                index=index,
                order=order,
                part=number,
                seq=None if kind else int(entries.seq[index]),
                op=operation.op,
                src=operation.src if kind else ABSENT,
                dst=operation.dst if kind else ABSENT,
                tag=operation.tag,
                position=int(positions[index]),
                posted=index in dump.posted,
                thread=thread_of(entries, index),
                held=index in dump.held,
                overtaken=index < last_done and index not in dump.held,
                started=begun.get((number, kind, counter), begun.get(index)),
                on_device=backend_of(operation.backend).enqueued,
                created_ns=int(entries.created_ns[index]),
            )
        )


def _begun(
    entries: Entries, part_index: Int32, p2p: Bool, ends: Bool
) -> dict[int | tuple[int, bool, int], bool]:
    """True, by entry, or by group, kind and number for batches, where the device has begun it.

    {} without timing: no buffer tells of a beginning then.  Members of a batch keep the state that
    they were written with, so what closes it tells of all; but one that has begun has begun.
    """
    started = entries.state == State.STARTED
    if not started.any() and not (entries.started_ns > 0).any():
        return {}
    open_ = np.flatnonzero(started | (entries.state == State.SCHEDULED))
    found: dict[int | tuple[int, bool, int], bool] = {}
    begun: dict[int | tuple[int, bool, int], bool] = {}
    for index in open_.tolist():
        kind = bool(p2p[index])
        counter = int(entries.p2p_seq[index]) if kind else int(entries.seq[index])
        found[index] = bool(started[index])
        batch = int(part_index[index]), kind, counter
        begun[batch] = begun.get(batch, False) or bool(started[index])
        if ends[index]:
            found[batch] = False
    return {key: begun.get(key, value) for key, value in found.items()}


def _read_channels(
    entries: Entries,
    summary: RankSummary,
    part_index: Int32,
    chosen: Bool,
    done: Bool,
    positions: Int64,
    posted: frozenset[int],
) -> None:
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return
    key = part_index[rows].astype(np.int64) * len(entries.operations) + entries.operation[rows]
    for channel in sorted(set(key.tolist())):
        mine = rows[key == channel]
        number, operation = divmod(channel, len(entries.operations))
        what = entries.operations[operation]
        positions[mine] = np.arange(len(mine))
        finished = done[mine]
        summary.parts[number].channels.append(
            P2PChannel(
                src=what.src,
                dst=what.dst,
                sends=op_of(what.op).sends,
                posted=len(mine),
                done=int(finished.sum()),
                open=tuple(np.flatnonzero(~finished).tolist()),
                awaited=tuple(
                    at for at in np.flatnonzero(~finished).tolist() if int(mine[at]) not in posted
                ),
                tag=what.tag,
                arguments=_message_arguments(entries, mine, op_of(what.op).sends),
            )
        )


def _message_arguments(
    entries: Entries, rows: Int64, sends: bool
) -> tuple[tuple[int, MessageArguments], ...]:
    """Runs of the arguments of a channel's messages, the first ``MESSAGE_RUNS``."""
    codes = entries.argument[rows]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))[: MESSAGE_RUNS + 1]
    ends = [*starts[1:].tolist(), len(rows)][:MESSAGE_RUNS]
    runs: list[tuple[int, MessageArguments]] = []
    for start, end in zip(starts.tolist(), ends, strict=False):
        one = _of_message(entries.arguments[int(codes[start])], sends)
        count = end - start
        if runs and runs[-1][1] == one:
            count += runs.pop()[0]
        runs.append((count, one))
    return tuple(runs)


def _of_message(given: Arguments, sends: bool) -> MessageArguments:
    sent = given.input_sizes, given.input_dtypes
    taken = given.output_sizes, given.output_dtypes
    sizes, dtypes = (sent if sent[0] else taken) if sends else (taken if taken[0] else sent)
    return MessageArguments(sum(map(prod, sizes)), dtypes[0] if len(set(dtypes)) == 1 else "")
