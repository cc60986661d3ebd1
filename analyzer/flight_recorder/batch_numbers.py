"""Batches of sends and receives: their ends marked as such, and numbered as torch does from 2.6 on.

No release marks the entry that ends a batch as one of messages: ``ProcessGroupNCCL::initWork`` asks
the kind of the operation, which is "coalesced", not what it has been told.  So its number would be
that of its group's last collective.

Up to 2.5, starting a batch counts as a collective of its group, and the number of messages stays as
it is.  So two ranks that exchange with more or fewer peers have the same collective under two
numbers, and all batches have one.  Later, a batch has the next number of messages
(``startCoalescing`` and ``pointToPoint`` of ``ProcessGroupNCCL.cpp``), and that is what everything
behind this module reads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Bool, Entries, Int64
from hanglab.recorder.case.operations import op_of


def number_batches(entries: Entries) -> Entries:
    """The entries, in groups whose batches count as collectives with numbers of their own.

    In a ring that has lost its first entries the collectives of such a group keep theirs: how many
    batches went before them is not known.
    """
    is_end = np.array([op_of(one.op).batch_end for one in entries.operations], dtype=np.bool_)
    if not is_end.any() or not entries.is_p2p.any():
        return entries
    ends = is_end[entries.operation]
    entries = replace(entries, is_p2p=entries.is_p2p | _ends_of_messages(entries, ends))
    names = {entries.group_names[number].name for number in np.unique(entries.group[ends])}
    groups = [np.flatnonzero(entries.in_group(name)) for name in sorted(names)]
    counted = [rows for rows in groups if _count_as_collectives(entries, rows, ends)]
    if not counted:
        return entries
    is_p2p, seq, p2p_seq = (
        column.copy() for column in (entries.is_p2p, entries.seq, entries.p2p_seq)
    )
    whole = int(entries.record_id[0]) == 0 and bool((np.diff(entries.record_id) == 1).all())
    for rows in counted:
        _renumber(rows, ends, is_p2p, seq, p2p_seq, whole=whole)
    return replace(entries, is_p2p=is_p2p, seq=seq, p2p_seq=p2p_seq)


def _ends_of_messages(entries: Entries, ends: Bool) -> Bool:
    """Marks of the ends of batches that have the numbers of messages before them.

    And of one whose messages the ring has dropped, if all other batches of its group are of such.
    """
    keys = np.stack([entries.group.astype(np.int64), entries.seq, entries.p2p_seq], axis=1)
    _, key = np.unique(keys, axis=0, return_inverse=True)
    key = key.reshape(-1)
    found: Bool = ends & np.isin(key, key[entries.is_p2p & ~ends])
    if int(entries.record_id[0]) > 0:
        _, firsts = np.unique(entries.group, return_index=True)
        for row in firsts[ends[firsts] & ~found[firsts]].tolist():
            others = np.flatnonzero(ends & (entries.group == entries.group[row]))[1:]
            messages = entries.is_p2p & (entries.group == entries.group[row])
            found[row] = bool(messages.any()) and bool(found[others].all())
    return found


def _count_as_collectives(entries: Entries, rows: Int64, ends: Bool) -> bool:
    """True if messages of batches have no number of their own, or that of the batch before."""
    messages = rows[entries.is_p2p[rows] & ~ends[rows]]
    ended = {*entries.seq[rows[ends[rows]]].tolist()}
    numbers = zip(entries.seq[messages].tolist(), entries.p2p_seq[messages].tolist(), strict=True)
    batches = {(seq, p2p_seq) for seq, p2p_seq in numbers if seq in ended}
    own = {p2p_seq for _, p2p_seq in batches}
    return len(batches) > len(own) or 0 in own


def _renumber(
    rows: Int64, ends: Bool, is_p2p: Bool, seq: Int64, p2p_seq: Int64, *, whole: bool
) -> None:
    messages = batches = 0
    last, batch = 0, ABSENT
    before: tuple[int, int] | None = None
    for row in rows.tolist():
        number = int(seq[row])
        is_p2p[row] |= ends[row] and number == batch
        if is_p2p[row]:
            if number > last:  # A message alone has the number of what came before it.
                batch = number
                batches += 1
            messages += (number, int(p2p_seq[row])) != before
            before = number, int(p2p_seq[row])
            p2p_seq[row] = messages
        last = max(last, number)
        if whole:
            seq[row] = number - batches
