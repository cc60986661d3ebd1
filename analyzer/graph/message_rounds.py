"""Rounds of a rank's messages, which tell what it has to exchange next.

Within a round a schedule of messages comes to phases, each of which may begin with a peer, or an
order, that the rank never had before.  So its past tells only where it has come round before.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries, Int64
from hanglab.analyzer.graph.thresholds import (
    COMPARED_ROUNDS,
    KNOWN_ROUNDS,
    LATEST_ISSUED,
    MANY_MESSAGES,
    MANY_ROUNDS,
)
from hanglab.analyzer.matching.group_history import period_of, repeats_since
from hanglab.analyzer.matching.signatures import call_site
from hanglab.recorder.case.operations import op_of


def has_known_rounds(entries: Entries | None, index: int) -> bool:
    """True if a rank had come round before the entry with that index, with the same messages.

    From one collective to the next of its kind, at least twice; or the line of that entry has made
    one exchange before and no other; or, where no collective came behind the first message,
    if it has done nothing but rounds in which that message is, or exchanged many of one kind.
    """
    if entries is None or not 0 <= index < len(entries):
        return False
    if _is_of_one_exchange(entries, index):
        return True
    keys, messages = _messages_before(entries, index)
    collective = np.flatnonzero(~entries.is_p2p[:index] & (entries.seq[:index] >= 0))
    if not len(messages):
        return False
    kinds = keys * (len(entries.stacks) + 1) + entries.stack
    marks: dict[int, list[int]] = {}
    for row in collective.tolist():
        marks.setdefault(int(kinds[row]), []).append(row)
    rounds = [rows for rows in marks.values() if len(rows) > KNOWN_ROUNDS]
    if any(_are_alike(keys, messages, rows[-COMPARED_ROUNDS:]) for rows in rounds):
        return True
    if len(collective) and collective[-1] > messages[0]:
        return False
    if _rounds_alone(keys[messages].tolist(), int(keys[index])):
        return True
    return bool(np.unique(keys[messages], return_counts=True)[1].max() >= MANY_MESSAGES)


def _is_of_one_exchange(entries: Entries, index: int) -> bool:
    """True if a line has made one exchange again and again, by the half that the entry is.

    Whoever its peer is now; the line of a helper serves every phase, sends and receives.
    """
    site = call_site(entries.stack_at(index)) if entries.stack[index] >= 0 else None
    if site is None:
        return False
    stacks = [number for number, stack in enumerate(entries.stacks) if call_site(stack) == site]
    rows = np.flatnonzero(np.isin(entries.stack[:index], stacks) & entries.is_p2p[:index])
    exchanges: dict[int, set[int]] = {}
    for row in rows.tolist():
        batch = batch_of(entries, row)
        if op_of(entries.operation_at(row).op).half and batch != batch_of(entries, index):
            exchanges.setdefault(batch, set()).add(int(entries.operation[row]))
    alike = {frozenset(one) for one in exchanges.values()}
    half = op_of(entries.operation_at(index).op).half
    return (
        len(exchanges) >= KNOWN_ROUNDS
        and len(alike) == 1
        and half in {op_of(entries.operations[one].op).half for one in alike.pop()}
    )


def batch_of(entries: Entries, row: int) -> int:
    """Number of a message's batch; of one that bears none, below 0 and its own."""
    number = int(entries.p2p_seq[row])
    return number if number > 0 else -1 - row


def did_rounds_alone(entries: Entries | None, index: int, *, usual: bool) -> bool:
    """True if all messages before an entry were rounds of several, from the first on.

    ``usual``: and the entry is one of them, whose rounds may have it alone.
    """
    if entries is None or not 0 <= index < len(entries):
        return False
    keys, messages = _messages_before(entries, index)
    key = int(keys[index]) if usual else None
    return _rounds_alone(keys[messages].tolist(), key) > (0 if usual else 1)


def _messages_before(entries: Entries, index: int) -> tuple[Int64, Int64]:
    """Numbers that stand for group and operation of each entry, and the messages before one."""
    halves = np.array([bool(op_of(one.op).half) for one in entries.operations], dtype=np.bool_)
    keys: Int64 = entries.group.astype(np.int64) * len(entries.operations) + entries.operation
    return keys, np.flatnonzero(halves[entries.operation[:index]])


def _rounds_alone(made: list[int], key: int | None) -> int:
    """Length of the rounds that all messages but the latest were, from the first on; 0 for none.

    Of rounds that have the message ``key``, if one is given.
    """
    for latest in (*LATEST_ISSUED, 0):
        past = made[: max(0, len(made) - latest)]
        period = period_of(past)
        if period is not None and len(past) >= MANY_ROUNDS * period:
            kept = not repeats_since(past, period) and (key is None or key in past[:period])
            return period if kept else 0
    return 0


def _are_alike(keys: Int64, messages: Int64, marks: list[int]) -> bool:
    """True if there were the same messages between each two of ``marks``, and some."""
    places = np.searchsorted(messages, marks)
    rounds = [Counter(keys[messages[a:b]].tolist()) for a, b in pairwise(places.tolist())]
    return bool(rounds[0]) and all(one == rounds[0] for one in rounds)
