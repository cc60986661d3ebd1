"""Messages whose halves have both come, and which wait for what is queued before one of them.

A group has a stream of its own, and so has each pair of ranks that sends singly; but a stream may
wait for whatever its host issued before, in any group.  A message that has its other half and does
not finish is held up by nothing but such an older operation of one of its ends, or a device.
"""

from __future__ import annotations

from dataclasses import replace

from hanglab.analyzer.graph.launches import other_half
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations


def hold_up_queued_messages(waits: OpenOperations) -> None:
    """Let matched messages wait for the other end, where that has something older unfinished."""
    for rank, mine in [*waits.by_rank.items()]:
        for pending, waiting in mine:
            peer = waiting.peer
            if waiting.seq is not None or peer is None or waiting.group.doubtful:
                continue
            if waiting.absent or waiting.unknown or waiting.finished or peer in waits.unordered:
                continue
            half = other_half(rank, pending, waiting, waits)
            if half is None or half.started:
                continue
            if any(
                older.order < half.order
                # What went by was another stream, and not that of the two.
                and (not older.overtaken or (other.peer == rank and other.group is waiting.group))
                for older, other in waits.by_rank[peer]
            ):
                waiting.behind = [peer]
                continue
            before = [
                other for older, other in mine
                if older.order < pending.order
                and (other.peer, other.group) == (peer, waiting.group)
            ]  # fmt: skip
            if before:
                # The two have one stream, in which it comes later: what is older holds it up.
                waiting.behind = [rank]
                waiting.leaders.discard(rank)
                if not pending.passed:
                    for other in before:
                        _hold_up(rank, other, waits)


def _hold_up(rank: int, waiting: OpenOperation, waits: OpenOperations) -> None:
    """Let a rank wait in an operation: what went by was another stream than that of the two."""
    pending = replace(waiting.waiters[rank], passed=False)
    waits.by_rank[rank] = [
        (pending, one) if one is waiting else (other, one) for other, one in waits.by_rank[rank]
    ]
    waiting.waiters[rank] = pending
    waiting.leaders.add(rank)
