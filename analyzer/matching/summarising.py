"""Boils one rank's dump down to its summary."""

from __future__ import annotations

from typing import Any

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Int32, Int64, RankDump
from hanglab.analyzer.matching.completion import complete, in_unclosed_batch
from hanglab.analyzer.matching.entry_queries import (
    busiest_thread,
    distinct,
    has_boundary,
    only_thread,
)
from hanglab.analyzer.matching.group_summaries import (
    accounted,
    extend,
    may_have_lost,
    member_count,
    read_collectives,
    read_gaps,
)
from hanglab.analyzer.matching.pending_operations import read_pending
from hanglab.analyzer.matching.signatures import UInt64, signature_table
from hanglab.analyzer.matching.summary import GAP, GroupSummary, Members, RankSummary, compact
from hanglab.analyzer.worlds.activity import activity_of
from hanglab.recorder.case.backends import EMULATED_LIBRARY


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
    summary.boundary_only = dump.boundary_only
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
    summary.silent_p2p = gloo and not (dump.sends_known or has_boundary(dump))
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
    summary.undropped = not summary.truncated and len(known_ids) > 0 and int(known_ids[0]) == 0
    summary.whole = (
        summary.undropped
        and int(known_ids[-1]) == len(known_ids) - 1
        # Numbered from the beginning, but a later one: the recorder was reset.
        and (not len(collectives) or int(collectives[0]) <= 1)
    )
    summary.last = count - 1
    summary.thread = busiest_thread(entries)
    sparse, active_only = completion.sparse, completion.active_only
    codes, summary.table = _codes(entries)
    parts = summary.parts[: len(by_name)]
    boundary = has_boundary(dump)
    for number, part in enumerate(parts):
        rows = np.flatnonzero(part_index == number)
        part.gloo = completion.gloo[number]
        part.p2p = completion.mixed[number]
        part.pg_id = completion.pg_ids[number]
        part.first_ns = int(entries.created_ns[rows[0]])
        part.last_ns = int(entries.created_ns[rows[-1]])
        part.active_only = active_only
        if not part.members:
            part.size = member_count(entries, rows)
        collective = rows[~p2p[rows] & (entries.seq[rows] >= 0) & ~completion.undetermined[rows]]
        status = dump.status.get(part.pg_id)
        mine = codes[collective]
        # The end stands for a batch: without it, nobody knows what the number is.
        if active_only:
            mine[in_unclosed_batch(entries, collective, completion.ends)] = GAP
        read_collectives(part, entries.seq[collective], mine, done[collective])
        part.thread = only_thread(entries, collective)
        if not part.gloo:
            # The end of a batch has the number of its last member, which the ring may have dropped.
            begins = summary.whole or not completion.ends[rows[0]]
            all_there = not active_only or _has_all_batches(entries, rows[p2p[rows]])
            part.counted = begins and int(entries.op_id[rows[0]]) == 1 and all_there
            part.unseen = _unseen(entries, rows[~completion.ends[rows]])
            if part.p2p and not active_only:
                # A send or receive carries the number of the last collective before it.
                part.entered = max(part.entered or 0, int(entries.seq[rows].max()))
        if part.gloo:
            read_gaps(part, entries, rows, collective, boundary)
        elif status is not None and not part.p2p:
            extend(part, status.enqueued or 0, status.completed or 0)
        if not sparse and may_have_lost(part):
            part.history_truncated = not accounted(part, entries, rows, status, done)
    # The oldest entry that there is has not finished, so neither may older ones.
    if not (summary.whole or sparse or bool(done[0])):
        summary.history_truncated = not all(
            accounted(
                part,
                entries,
                np.flatnonzero(part_index == number),
                dump.status.get(part.pg_id),
                done,
            )
            for number, part in enumerate(parts)
        )
    read_pending(entries, summary, completion, dump)


def _has_all_batches(entries: Entries, messages: Int64) -> bool:
    """True if no number lacks of the group's sends and receives, from the first on.

    Members of batches are never seen to finish, so that dumps of what is open have them all.
    """
    numbers = np.unique(entries.p2p_seq[messages])
    return len(numbers) > 0 and int(numbers[0]) == 1 and int(numbers[-1]) == len(numbers)


def _unseen(entries: Entries, rows: Int64) -> int:
    """Operations of a group that its entries lack, up to the last of them, by their numbers."""
    numbers = entries.op_id[rows]
    if not len(rows) or int(numbers[0]) < 1 or bool((np.diff(numbers) < 1).any()):
        return ABSENT
    return int(numbers[-1]) - len(rows)


def _codes(entries: Entries) -> tuple[Int32, UInt64]:
    """Index of each entry's signature, and the table of signatures."""
    arguments, stacks = len(entries.arguments), len(entries.stacks) + 1
    key = (entries.operation.astype(np.int64) * arguments + entries.argument) * stacks
    key += entries.stack + 1
    found, codes = distinct(key)
    keys = [
        (k // stacks // arguments, k // stacks % arguments, k % stacks - 1) for k in found.tolist()
    ]
    table = signature_table(entries.operations, entries.arguments, entries.stacks, keys)
    return codes.astype(np.int32), table
