"""Ranks that have ended what others of a group are in, and which nobody ends before all take part.

They, or in a pair one of the two, have called another operation there, of which no dump tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.wait_for_graph import EndedOtherwise
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.recorder.case.operations import op_of


def find_ended_otherwise(waits: OpenOperations, shown: CallsOfRanks) -> Iterator[EndedOtherwise]:
    """Operations of devices that fewer ranks have ended than are in them, by calls not known."""
    for waiting in waits.operations.values():
        if 0 < len(waiting.finished) < len(waiting.waiters) and _by_unknown_calls(waiting, shown):
            yield _ended(waiting, shown)


def ended_in_pairs(waits: OpenOperations, shown: CallsOfRanks) -> Iterator[EndedOtherwise]:
    """Operations of a pair that one of the two has ended, by a call not known.

    It explains them: a device that stopped before its part would have held up the other.
    """
    for waiting in waits.operations.values():
        pair = len(waiting.finished) == len(waiting.waiters) == 1
        if pair and waiting.waiters.keys() <= waits.stopped and _by_unknown_calls(waiting, shown):
            waits.stopped -= waiting.waiters.keys()
            waiting.explained = True
            yield _ended(waiting, shown)


def withdraw_unseen_stops(waits: OpenOperations, lookup: CallLookup) -> set[int]:
    """Ranks in collectives that all peers have ended by calls that no dump holds.

    They may have stopped, or called otherwise than these.  In a pair nothing tells which of the two
    did: such a stop is withdrawn.
    """
    found = set()
    for rank in sorted(waits.stopped):
        for waiting in waits.first(rank):
            ended = waiting.finished if waiting.seq is not None else []
            if not ended or any(_shows_call(peer, waiting, lookup) for peer in ended):
                continue
            if len(waiting.group.members) == 2:
                waits.stopped.discard(rank)
                waiting.explained = True
            else:
                found.add(rank)
    return found


def _shows_call(rank: int, waiting: OpenOperation, lookup: CallLookup) -> bool:
    assert waiting.seq is not None
    return lookup.index_of(rank, waiting.group.group.name, waiting.seq) >= 0


def _by_unknown_calls(waiting: OpenOperation, shown: CallsOfRanks) -> bool:
    """True if all of a group are in an operation or have ended it, by what no dump tells."""
    if waiting.seq is None or not op_of(waiting.op).synchronizing or waiting.explained:
        return False
    if waiting.absent or waiting.unknown or not waiting.leaders >= waiting.waiters.keys():
        return False
    if not all(pending.on_device for pending in waiting.waiters.values()):
        return False
    return not any(_shows_call(rank, waiting, shown.lookup) for rank in waiting.finished)


def _ended(waiting: OpenOperation, shown: CallsOfRanks) -> EndedOtherwise:
    group = waiting.group.group
    calls = waiting.waiters.items()
    return EndedOtherwise(
        tuple(waiting.finished),
        tuple(shown.call(rank, pending, group, full=True) for rank, pending in calls),
    )
