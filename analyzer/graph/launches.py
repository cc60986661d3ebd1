"""Launches: operations of ranks, or batches of such, that have not finished, and whom they meet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.roots import may_hide
from hanglab.analyzer.graph.thresholds import UNORDERED
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations, channel_of
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of

#: Rank and order of a launch: a batch is one.
LaunchId = tuple[int, int]


@dataclass
class Launch:
    """One rank's operation, or batch of such, that has not finished."""

    rank: int
    order: int
    started: bool | None
    on_device: bool
    #: The device has finished something later.
    overtaken: bool
    #: For each of its parts the launches of those who came: one list for all of a collective, with
    #: its own among them.
    meets: list[Sequence[LaunchId]] = field(default_factory=list)
    #: Members that have not come to it.
    absent: frozenset[int] = frozenset()
    #: Nobody knows whom it meets, or whether they came.
    unknown: bool = False
    #: The ring may have dropped older ones that have not finished.
    unseen_before: bool = False
    #: The thread that issued it, "" where the dump does not tell; its group.
    thread: str = ""
    place: int = ABSENT

    def may_follow(self, other: Launch) -> bool:
        """True if an older launch of its rank may have to end first: of its stream, or its thread.

        A thread lets its stream wait for what it has issued itself.
        """
        same = not (self.thread and other.thread) or self.thread == other.thread
        return other.order < self.order and (same or other.place == self.place)


def open_launches(merged: MergedSummaries, waits: OpenOperations) -> dict[LaunchId, Launch]:
    gloo_beside = {rank for rank, summary in merged.ranks.items() if summary.gloo}
    found: dict[LaunchId, Launch] = {}
    met = {
        key: [(rank, one.order) for rank, one in waiting.waiters.items() if one.index != ABSENT]
        for key, waiting in waits.operations.items()
        if waiting.seq is not None
    }
    begun = False
    for rank, mine in waits.by_rank.items():
        for pending, waiting in mine:
            if pending.index == ABSENT or pending.order >= UNORDERED:
                # Only a status tells of it.
                found[rank, -1 - len(found)] = Launch(rank, -1, None, True, False, unknown=True)
                continue
            launch = found.get((rank, pending.order))
            if launch is None:
                # On hosts operations of gloo overtake those of a device.
                overtaken = pending.overtaken and rank not in gloo_beside
                launch = Launch(rank, pending.order, pending.started, pending.on_device, overtaken)
                launch.thread, launch.place = pending.thread, waiting.key[0]
                summary = merged.ranks[rank]
                # No status tells whether a send or receive that the ring dropped has finished.
                dropped = not summary.undropped and any(part.p2p for part in summary.parts)
                launch.unseen_before = summary.history_truncated or dropped or may_hide(summary)
                found[rank, pending.order] = launch
                begun |= pending.started is True
            if waiting.finished and (op_of(pending.op).sends or _needs_all(waiting)):
                # A peer has taken what only this device could give.
                launch.started = True
            absent = waiting.not_entered
            launch.absent = launch.absent | absent if launch.absent else absent
            # A root that collects may lack a part that its sender put elsewhere, and went on.
            elsewhere = bool(waiting.finished) and op_of(waiting.op).collects
            launch.unknown |= elsewhere or bool(waiting.unknown)
            if waiting.seq is not None:
                launch.unknown |= len(met[waiting.key]) < len(waiting.waiters)
                launch.meets.append(met[waiting.key])
            elif waiting.peer is not None and not (waiting.absent or waiting.finished):
                half = other_half(rank, pending, waiting, waits)
                if half is None:
                    launch.unknown = True
                else:
                    launch.meets.append([(waiting.peer, half.order)])
    if not begun:
        # Where no device is seen to have begun anything, times were perhaps not taken.
        for launch in found.values():
            launch.started = launch.started or None
    return found


def _needs_all(waiting: OpenOperation) -> bool:
    return op_of(waiting.op).rootless


def other_half(
    rank: int, pending: Pending, waiting: OpenOperation, waits: OpenOperations
) -> Pending | None:
    """The other half of a send or receive, where that is open, too."""
    assert waiting.peer is not None
    kind = op_of(pending.op)
    theirs = waits.messages.get(channel_of(waiting.peer, kind.other_half, pending, waiting), [])
    if waiting.certain:
        at = bisect_left(theirs, pending.position, key=lambda one: one.position)
        found = at < len(theirs) and theirs[at].position == pending.position
    else:
        mine = waits.messages[channel_of(rank, kind.half, pending, waiting)]
        at = bisect_left(mine, pending.index, key=lambda one: one.index)
        found = at < len(theirs)
    return theirs[at] if found else None


def any_of(
    parts: Iterable[Sequence[LaunchId]], tells: Callable[[LaunchId], bool], told: dict[int, bool]
) -> bool:
    """True if that is so of any launch of the parts; each of these is asked once, by ``told``."""
    for part in parts:
        if id(part) not in told:
            told[id(part)] = any(map(tells, part))
        if told[id(part)]:
            return True
    return False


def explains_all(
    root: Launch, launches: Mapping[LaunchId, Launch], by_rank: Mapping[int, list[Launch]]
) -> bool:
    """True if nothing that is open could finish before ``root`` does.

    And if the ranks that ``root`` lacks have something open: else they are outside.
    """
    oldest = {root.rank: root.order}
    explained = {(root.rank, root.order)}
    left = [one for one in launches if one not in explained]
    while left:
        still = []
        #: Whether any of a part is explained, by the part, as it was first asked for in this turn.
        told: dict[int, bool] = {}
        for one in left:
            launch = launches[one]
            queued = not launch.started and oldest.get(launch.rank, launch.order) < launch.order
            if (
                queued
                or any_of(launch.meets, lambda met: met in explained, told)
                or any(other in oldest for other in launch.absent)
            ):
                explained.add(one)
                oldest[launch.rank] = min(launch.order, oldest.get(launch.rank, launch.order))
            else:
                still.append(one)
        if len(still) == len(left):
            return False
        left = still
    return all(other in by_rank for other in root.absent)
