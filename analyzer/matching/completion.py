"""Completion of a dump's entries, by all that it says of them.

The state alone lies: gloo never changes it, members of a batch keep theirs, an
abort completes what it ends, and a status may know more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hanglab.analyzer.flight_recorder.columns import (
    Bool,
    Entries,
    GroupStatus,
    Int32,
    Int64,
    Operation,
    RankDump,
    State,
)
from hanglab.analyzer.matching.thresholds import FREED_SHARE
from hanglab.recorder.case.backends import backend_of
from hanglab.recorder.case.operations import op_of


@dataclass
class Completion:
    """Arrays have shape ``(n,)``, one value per entry; lists have one per group."""

    #: Number of the entry's group.
    group: Int32
    #: It is a send or a receive, or the end of a batch of such.
    p2p: Bool
    #: It closes a batch of coalesced operations.
    ends: Bool
    #: It has provably finished.
    done: Bool
    #: The file breaks off behind it, and what would tell whether it has finished is gone; or its
    #: group was destroyed since.
    undetermined: Bool
    #: What had finished was left out of the dump, as far as can be seen.
    active_only: bool
    #: Entries are missing between others.
    sparse: bool
    #: Some entry of the group is gloo's: groups of one job may have different backends.
    gloo: list[bool] = field(default_factory=list)
    #: The group's status may count sends and receives, too.
    mixed: list[bool] = field(default_factory=list)
    pg_ids: list[int] = field(default_factory=list)


def completed(dump: RankDump) -> Bool:
    """Entries of ``dump`` that have provably finished, of shape ``(n,)``."""
    entries = dump.entries
    if entries is None or not len(entries):
        return np.zeros(0, dtype=np.bool_)
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(group.name, len(numbers)) for group in entries.group_names]
    return complete(entries, dump, np.array(groups, dtype=np.int32)[entries.group]).done


def complete(entries: Entries, dump: RankDump, group: Int32) -> Completion:
    """``group`` numbers the entries' groups from 0 on, groups of one name alike."""
    operations = entries.operations
    ops = [operation.op for operation in operations]
    is_p2p = np.array([op_of(op).p2p for op in ops], dtype=np.bool_)
    p2p = entries.is_p2p | is_p2p[entries.operation]
    gloo = _keeping_state(operations, False)[entries.operation]
    known_ids = entries.record_id[entries.record_id >= 0]
    done, ended_early = _state_by_entry(entries, operations, gloo)
    ends = np.array([op_of(op).batch_end for op in ops], dtype=np.bool_)[entries.operation]
    sparse = len(entries) > 1 and bool((np.diff(known_ids) > 1).any())
    found = Completion(
        group=group,
        p2p=p2p,
        ends=ends,
        done=done,
        undetermined=np.zeros(len(entries), dtype=np.bool_),
        active_only=_shows_active_only(entries, dump, sparse),
        sparse=sparse,
    )
    for number in range(int(group.max()) + 1):
        rows = np.flatnonzero(group == number)
        found.gloo.append(bool(gloo[rows].any()))
        mixed = bool(p2p[rows].any()) or (
            not found.gloo[-1]
            and (bool((entries.p2p_seq[rows] > 0).any()) or _mixes_numbers(entries, dump, rows))
        )
        found.mixed.append(mixed)
        found.pg_ids.append(int(entries.pg_id[rows].max()))
        _complete_group(entries, dump, found, rows, ended_early)
    if dump.damage and not ends[-1]:
        found.undetermined |= _last_number(entries, found) & ~done
    for name in dump.former:
        # Nobody waits in a group that is destroyed, whatever became of its operations.
        found.undetermined |= entries.in_group(name) & ~done
    return found


def _mixes_numbers(entries: Entries, dump: RankDump, rows: Int64) -> bool:
    """True if a status has numbers of messages and of collectives: each kind counts for itself."""
    status = dump.status.get(int(entries.pg_id[rows].max()))
    return status is not None and (status.completed or 0) > max(status.enqueued or 0, 0) > 0


def _last_number(entries: Entries, found: Completion) -> Bool:
    """The last entry, and those that may be of one batch with it."""
    number = entries.p2p_seq if found.p2p[-1] else entries.seq
    same: Bool = (
        (found.group == found.group[-1]) & (found.p2p == found.p2p[-1]) & (number == number[-1])
    )
    return same


def _complete_group(
    entries: Entries, dump: RankDump, found: Completion, rows: Int64, ended_early: Bool
) -> None:
    p2p, done = found.p2p, found.done
    collective = rows[~p2p[rows] & (entries.seq[rows] >= 0)]
    status = dump.status.get(found.pg_ids[-1])
    ended = collective[ended_early[collective]]
    if status is not None and not found.gloo[-1] and not found.mixed[-1]:
        limit = status.completed or 0
        if len(ended):
            limit = min(limit, int(entries.seq[ended].min()) - 1)
        done[collective[entries.seq[collective] <= limit]] = True
    if len(ended):
        done[collective[entries.seq[collective] >= int(entries.seq[ended].min())]] = False
    _close_batches(entries, rows, p2p, found.ends, done)
    if found.active_only:
        # It was left out, since it had finished.
        done[collective[in_unclosed_batch(entries, collective, found.ends)]] = True
    if not found.gloo[-1]:
        _close_silent_batches(entries, rows, found, status)


def _keeping_state(operations: Sequence[Operation], kept: bool) -> Bool:
    """Per operation: it is known that its backend keeps its state, or that it does not."""
    return np.array([backend_of(o.backend).keeps_state is kept for o in operations], dtype=np.bool_)


def _state_by_entry(
    entries: Entries, operations: Sequence[Operation], gloo: Bool
) -> tuple[Bool, Bool]:
    """Per entry: it says that it finished; it says that it timed out or was aborted."""
    completed = entries.state == State.COMPLETED
    keeps_state = _keeping_state(operations, True)[entries.operation]
    if not keeps_state.all() and bool((entries.state > State.SCHEDULED).any()):
        keeps_state = ~gloo
    done = completed | (entries.retired & ~keeps_state)
    limit = entries.timeout_ms.astype(np.float64) * 1e6 * FREED_SHARE
    freed = (
        completed
        & (entries.completed_ns > 0)
        & (entries.timeout_ms > 0)
        & ((entries.completed_ns - entries.created_ns) >= limit)
    )
    ended_early = freed | (entries.retired & ~completed & keeps_state)
    return done & ~freed, ended_early


def _shows_active_only(entries: Entries, dump: RankDump, sparse: bool) -> bool:
    """True if what has finished was left out of the dump, as far as can be seen."""
    if bool((entries.state == State.COMPLETED).any()) or bool(entries.retired.any()):
        return False
    if sparse or any((status.completed or 0) > 0 for status in dump.status.values()):
        return True
    # Formats without statuses: a ring full of unfinished operations is less likely.
    return not dump.status and int(entries.record_id[0]) > 0


def _close_batches(entries: Entries, rows: Int64, p2p: Bool, ends: Bool, done: Bool) -> None:
    """Members of a batch have finished once the entry that closes it has."""
    for kind in (True, False):
        mine = rows[p2p[rows] == kind]
        numbers = (entries.p2p_seq if kind else entries.seq)[mine]
        closed = numbers[ends[mine] & done[mine]]
        if len(closed):
            done[mine[np.isin(numbers, closed)]] = True


def in_unclosed_batch(entries: Entries, collective: Int64, ends: Bool) -> Bool:
    """Marks of the collectives that belong to a batch whose end is not shown."""
    numbers = entries.seq[collective]
    counts = Counter(numbers.tolist())
    shown = set(numbers[ends[collective]].tolist())
    through = [number for number, count in counts.items() if count > 1 and number not in shown]
    return np.isin(numbers, through)


def _close_silent_batches(
    entries: Entries, rows: Int64, found: Completion, status: GroupStatus | None
) -> None:
    """Close batches whose end is not shown: members never change their state.

    A dump of active entries leaves the end out once it has finished, and the
    ring may have dropped the first members of the oldest batch.
    """
    done, active_only = found.done, found.active_only
    mine = rows[found.p2p[rows] & ~done[rows]]
    if not len(mine):
        return
    numbers = entries.p2p_seq[mine]
    still_open = set(numbers[found.ends[mine]].tolist())
    counts = Counter(numbers.tolist())
    last = _ended_last(entries, int(mine[-1]), status) if active_only else None
    lone = [
        (row, number)
        for row, number in zip(mine.tolist(), numbers.tolist(), strict=True)
        if counts[number] == 1 and number not in still_open and number != last
    ]
    # Whoever sends in batches does so always: one message that no batch holds speaks against it.
    may_be_batches = active_only and all(_may_lack_an_end(entries, rows, row) for row, _ in lone)
    ended = status.completed or 0 if status is not None else 0
    in_batches = may_be_batches and all(n <= ended and row < rows[-1] for row, n in lone)
    # A status has one number for messages and collectives, that of what was issued last.
    if may_be_batches and lone and status is not None and not in_batches:
        hidden = (status.enqueued or 0) < max(number for _, number in lone)
        found.undetermined[[row for row, _ in lone]] |= hidden
    for row, number in zip(mine.tolist(), numbers.tolist(), strict=True):
        if number in still_open:
            continue
        whole = counts[number] > 1 and (active_only or row + counts[number] < len(entries))
        if whole or number == last or in_batches:
            done[row] = True


def _ended_last(entries: Entries, row: int, status: GroupStatus | None) -> int | None:
    """The number of the send, receive or batch that was issued last, if it has ended."""
    if status is None or status.enqueued != status.completed:
        return None
    if status.enqueued == int(entries.p2p_seq[row]) <= int(entries.seq[row]):
        # The last one enqueued is a send or receive, the last one finished may be the
        # collective of the same number.
        return None
    return status.completed


def _may_lack_an_end(entries: Entries, rows: Int64, row: int) -> bool:
    """True if what a dump of active entries lacks behind a message may be the end of its batch.

    And no operation of its group: whatever of that has not ended it shows, and a message that no
    batch holds is shown because it has not.  Later ones, to other peers, may have ended before it.
    """
    later = rows[rows > row]
    if not len(later):
        return True
    left_out = int(entries.record_id[row + 1]) - int(entries.record_id[row]) - 1
    return left_out > 0 and int(entries.op_id[later[0]]) == int(entries.op_id[row]) + 1
