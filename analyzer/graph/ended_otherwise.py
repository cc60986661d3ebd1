"""Ranks that have ended what most of a group are in, and which nobody ends before all take part.

They have called another operation there, of which their dumps no longer tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.wait_for_graph import EndedOtherwise
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.recorder.case.operations import op_of


def find_ended_otherwise(waits: OpenOperations, shown: CallsOfRanks) -> Iterator[EndedOtherwise]:
    """Operations of devices that fewer ranks have ended than are in them, by calls not known."""
    for waiting in waits.operations.values():
        if waiting.seq is None or not op_of(waiting.op).synchronizing or waiting.explained:
            continue
        if waiting.absent or waiting.unknown or not waiting.leaders >= waiting.waiters.keys():
            continue
        if not 0 < len(waiting.finished) < len(waiting.waiters):
            continue
        if not all(pending.on_device for pending in waiting.waiters.values()):
            continue
        group = waiting.group.group
        called = (shown.lookup.index_of(rank, group.name, waiting.seq) for rank in waiting.finished)
        if all(index < 0 for index in called):
            yield EndedOtherwise(
                tuple(waiting.finished),
                tuple(
                    shown.call(rank, pending, group, full=True)
                    for rank, pending in waiting.waiters.items()
                ),
            )
