"""Batches of sends and receives, which finish as a whole.

A message whose halves have both come does not finish before the batch of either end can: what holds
up that batch holds up the other end's as well.  So the wait ends with whoever lacks in the batch.
"""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Bool, Entries
from hanglab.analyzer.graph.launches import other_half
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of

#: Rank, and the order that the members of a batch share.
_Batch = tuple[int, int]


def batched_entries(entries: Entries) -> Bool:
    """Marks of the entries that are part of a batch of sends and receives."""
    ends = np.array([op_of(one.op).batch_end for one in entries.operations], dtype=np.bool_)
    keys = entries.group.astype(np.int64) << 32 | entries.p2p_seq
    found: Bool = entries.is_p2p & np.isin(keys, keys[ends[entries.operation] & entries.is_p2p])
    return found


def may_lack_members(
    batch: _Batch, waits: OpenOperations, merged: MergedSummaries, lookup: CallLookup
) -> bool:
    """True if a ring begins with a batch, and may have dropped the first of its members."""
    rank, order = batch
    first = min(p.index for p, _ in waits.by_rank[rank] if p.order == order)
    if first != 0 or merged.ranks[rank].undropped:
        return False
    entries = lookup.entries(rank)
    return entries is None or bool(batched_entries(entries)[0])


def hold_up_batches(waits: OpenOperations) -> None:
    """Let matched messages wait for the batch of the other end, where somebody lacks in that."""
    batches: dict[_Batch, int] = {}
    messages = [
        (rank, pending, waiting)
        for rank, mine in waits.by_rank.items()
        for pending, waiting in mine
        if waiting.seq is None
    ]
    for rank, pending, _ in messages:
        batch = rank, pending.order
        batches[batch] = batches.get(batch, 0) + 1
    held = {
        (rank, pending.order)
        for rank, pending, waiting in messages
        if batches[rank, pending.order] > 1
        # What its rank has come to has begun, and would have taken what a peer had sent before.
        and (waiting.certain or rank in waiting.leaders)
        and (waiting.absent or waiting.unknown or waiting.behind)
    }
    if not held:
        return
    matched: dict[_Batch, list[tuple[int, Pending]]] = {}
    for rank, pending, waiting in messages:
        if waiting.stalled and waiting.peer is not None:
            theirs = other_half(rank, pending, waiting, waits)
            if theirs is not None:
                matched.setdefault((waiting.peer, theirs.order), []).append((rank, pending))
    of = {(rank, pending.index): waiting for rank, pending, waiting in messages}
    todo = list(held)
    while todo:
        blocked = todo.pop()
        for rank, pending in matched.get(blocked, ()):
            batch = rank, pending.order
            if batch not in held:
                of[rank, pending.index].behind = [blocked[0]]
                held.add(batch)
                todo.append(batch)
    for rank, pending, waiting in messages:
        waiting.in_held_batch = waiting.in_held_batch or (rank, pending.order) in held
