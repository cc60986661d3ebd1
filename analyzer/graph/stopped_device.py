"""The one device that has stopped, where all hosts have issued what others wait in.

Everybody is inside what was issued, and what is open differs from rank to rank.  A device that
runs nothing more holds up its own parts, what is queued behind them, and whoever is queued
behind that.  It is named if it explains all that is open, and no other device does.  A group is
a stream, but a stream may wait for any operation issued before: that edge is always unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, Int64
from hanglab.analyzer.graph.launches import (
    Launch,
    LaunchId,
    any_of,
    explains_all,
    open_launches,
    other_half,
)
from hanglab.analyzer.graph.thresholds import EXPLAINING_RANKS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.summary import Pending
from hanglab.recorder.case.operations import op_of


@dataclass(frozen=True)
class StoppedDevice:
    rank: int
    #: It has not begun what nothing older holds up; else it is the only one left that explains
    #: all that is open.
    unstarted: bool
    #: Ranks of one operation of its that explains all that is open as well, if it alone does not
    #: come through.
    stalled: tuple[int, ...] = ()


def ends_alone(waits: OpenOperations) -> StoppedDevice | None:
    """The rank that alone waits, in what all its peers have provably ended, if there is one."""
    first = [w for rank in waits.by_rank for w in waits.first(rank)]
    if (
        len(waits.by_rank) == 1
        and waits.stopped
        and all(w.seq is not None and len(w.finished) + 1 == len(w.group.members) for w in first)
    ):
        return StoppedDevice(min(waits.by_rank), unstarted=False)
    return None


def find_stopped_device(
    merged: MergedSummaries, waits: OpenOperations, lookup: CallLookup
) -> StoppedDevice | None:
    """The device that alone explains all that is open; None unless there is one such."""
    if any(w.explained or w.any_source for w in waits.operations.values()):
        return None
    if any(_crosses_in_stream(waiting, waits) for waiting in waits.operations.values()):
        return None
    launches = open_launches(merged, waits)
    by_rank: dict[int, list[Launch]] = {}
    for launch in launches.values():
        if not launch.on_device:
            return None  # What runs on hosts is not held up by devices.
        by_rank.setdefault(launch.rank, []).append(launch)
    for mine in by_rank.values():
        mine.sort(key=lambda launch: launch.order)
    candidates = _candidates(launches, by_rank)
    lacking = [one for one in launches.values() if one.absent or one.unknown]
    if candidates is None and not any(explains_all(one, launches, by_rank) for one in lacking):
        candidates = frozenset(by_rank)
    if candidates is None or len(candidates) > EXPLAINING_RANKS:
        return None
    found = [rank for rank in sorted(candidates) if _explains(rank, launches, by_rank)]
    if len(found) != 1 or meets_another_message(found[0], waits, lookup):
        return None
    first, *younger = by_rank.get(found[0], [])
    if first.started is False and any(launch.started for launch in younger):
        return None  # It runs what was launched behind that, on another stream.
    unstarted = first.started is False
    return StoppedDevice(
        found[0], unstarted, () if unstarted else _stalled_alone(first, launches, by_rank)
    )


def _stalled_alone(
    launch: Launch, launches: dict[LaunchId, Launch], by_rank: dict[int, list[Launch]]
) -> tuple[int, ...]:
    """Ranks of a launch, if all that is open is open because that does not come through."""
    met = [launches[one] for part in launch.meets for one in part]
    if not met or any(one.started is False for one in met):
        return ()
    if launch.absent or launch.unknown or not explains_all(launch, launches, by_rank):
        return ()
    return tuple(sorted({launch.rank, *(one.rank for one in met)}))


def _crosses_in_stream(waiting: OpenOperation, waits: OpenOperations) -> bool:
    """True if a message and one of its peer's are each in front of the other's half.

    The two share a stream, in which these wait for each other, whatever their devices do.
    """
    (rank, pending), *_ = waiting.waiters.items()
    peer = waiting.peer
    if waiting.seq is not None or peer is None or waiting.behind != [peer]:
        return False
    half = other_half(rank, pending, waiting, waits)
    return half is not None and any(
        other.group is waiting.group
        and other.peer == rank
        and other.behind == [rank]
        and theirs.order < half.order
        and (back := other_half(peer, theirs, other, waits)) is not None
        and pending.order < back.order
        for theirs, other in waits.by_rank.get(peer, [])
    )


def meets_another_message(rank: int, waits: OpenOperations, lookup: CallLookup) -> bool:
    """True if a message of the rank is not the one that its peer sends or takes."""
    for pending, waiting in waits.by_rank[rank]:
        if waiting.peer is None or waiting.absent:
            continue
        if waiting.finished:
            index = _index_of_finished(pending, waiting, lookup)
        else:
            theirs = other_half(rank, pending, waiting, waits)
            index = theirs.index if theirs is not None else ABSENT
        group = waiting.group.group
        other = lookup.at(waiting.peer, index, group, completed=bool(waiting.finished))
        mine = lookup.pending(rank, pending, group).arguments
        if other is None or not (mine.input_sizes and other.arguments.input_sizes):
            continue
        if (mine.input_sizes, mine.input_dtypes) != (
            other.arguments.input_sizes,
            other.arguments.input_dtypes,
        ):
            return True
    return False


def _index_of_finished(pending: Pending, waiting: OpenOperation, lookup: CallLookup) -> int:
    """Index of the peer's half that has finished; ABSENT where its ring does not hold all."""
    entries = lookup.entries(waiting.peer) if waiting.peer is not None else None
    if entries is None or not waiting.certain:
        return ABSENT
    rows = channel_rows(entries, pending, waiting, op_of(pending.op).other_half)
    return int(rows[pending.position]) if pending.position < len(rows) else ABSENT


def channel_rows(entries: Entries, pending: Pending, waiting: OpenOperation, half: str) -> Int64:
    """Indices of a rank's sends, or receives, on the channel of a message."""
    operations = [
        i for i, one in enumerate(entries.operations)
        if op_of(one.op).half == half and one.tag == pending.tag
        and (one.src, one.dst) == (pending.src, pending.dst)
    ]  # fmt: skip
    of_group = entries.in_group(waiting.group.group.name)
    rows: Int64 = np.flatnonzero(of_group & np.isin(entries.operation, operations))
    return rows


def _candidates(
    launches: dict[LaunchId, Launch], by_rank: dict[int, list[Launch]]
) -> frozenset[int] | None:
    """Ranks one of whose devices must have stopped; None where nothing restricts them.

    Of launches with nothing before them, that meet nothing but such, the devices alone are left.
    """
    first = {id(mine[0]) for mine in by_rank.values()}
    found: frozenset[int] | None = None
    asked: set[tuple[int, ...]] = set()
    for launch in launches.values():
        if id(launch) not in first or launch.unseen_before:
            continue
        if launch.started is not False and (launch.unknown or launch.absent):
            continue
        parts = tuple(map(id, launch.meets))
        if launch.started is False:
            holding = frozenset({launch.rank})
        elif parts and parts in asked:
            continue  # Of one collective all tell the same.
        else:
            asked.add(parts)
            met = [launches[one] for part in launch.meets for one in part]
            if not all(id(one) in first and not one.unseen_before for one in met):
                continue
            holding = frozenset(one.rank for one in met if not one.started)
            if launch.started is None:
                holding |= {launch.rank}
        found = holding if found is None else found & holding
    return found


def _explains(
    rank: int, launches: dict[LaunchId, Launch], by_rank: dict[int, list[Launch]]
) -> bool:
    """True if nothing that is open would have finished, had only the device of ``rank`` stopped."""
    explained: set[int] = set()

    def held(launch: Launch) -> bool:
        if launch.started:
            return False
        if launch.unseen_before or (launch.rank == rank and not launch.overtaken):
            return True
        return _any_before(launch, by_rank[launch.rank], explained)

    def any_kept_away(ranks: frozenset[int], away: dict[frozenset[int], bool]) -> bool:
        if ranks not in away:
            others = (one for rank in ranks for one in by_rank.get(rank, ()))
            away[ranks] = any(id(one) in explained for one in others)
        return away[ranks]

    left: list[Launch] = list(launches.values())
    while left:
        still = []
        told: dict[int, bool] = {}
        away: dict[frozenset[int], bool] = {}
        for launch in left:
            if launch.unknown or held(launch):
                explained.add(id(launch))
            elif launch.started is not False and (
                any_of(launch.meets, lambda one: held(launches[one]), told)
                or any_kept_away(launch.absent, away)
            ):
                explained.add(id(launch))
            else:
                still.append(launch)
        if len(still) == len(left):
            return False
        left = still
    return True


def _any_before(launch: Launch, mine: Iterable[Launch], explained: set[int]) -> bool:
    return any(id(one) in explained for one in mine if launch.may_follow(one))
