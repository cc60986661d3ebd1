"""Aligned collectives: operations that all members of a group entered, laid side by side.

Flight Recorder stamps an entry when its rank enters the operation.  When a rank
leaves one is known where the Python boundary saw the wait for it (gloo), or
where the library told (``time_discovered_completed_ns``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.facts.thresholds import (
    FEWEST_LATE,
    LATE_GAPS,
    LATEST_COLLECTIVES,
    SAME_HOST_CLOCK_NS,
)
from hanglab.analyzer.flight_recorder.columns import Entries, RankDump
from hanglab.recorder.case.backends import backend_of
from hanglab.recorder.case.progress_records import Progress

Times = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

#: Innermost frame of an operation that torch's own reducer issues during a backward pass.
_BACKWARD = ("torch/autograd/graph.py", "torch/autograd/__init__.py")


@dataclass
class AlignedCollectives:
    """The common operations of one group, oldest first; n operations, m members.

    Times are nanoseconds since ``Timeline.origin_ns`` on the clock of each
    member's own host until they are aligned.
    """

    group: str
    members: list[int]
    #: Shape (n,).
    seq: npt.NDArray[np.int64]
    #: Shape (n, m).
    entered: Times
    #: Shape (n, m); NaN where it is not known.
    left: Times
    #: Shape (n,): the members do not wait for this one before they enter the next.
    chained: Bool

    @property
    def release(self) -> Times:
        """Time at which the last member had entered, shape (n,)."""
        released: Times = self.entered.max(axis=1)
        return released


@dataclass
class Timeline:
    """All aligned collectives of a job."""

    origin_ns: int
    collectives: list[AlignedCollectives]


def timeline(dumps: Mapping[int, RankDump], progress: Mapping[int, Progress]) -> Timeline | None:
    """Aligned collectives of all groups whose members' dumps are all there; None without any."""
    columns: dict[str, dict[int, _NumberedCalls]] = {}
    members: dict[str, set[int]] = {}
    for rank, dump in dumps.items():
        entries = dump.entries
        if entries is None:
            continue
        told = progress.get(rank)
        waits, updates = _waits(told), updates_of(told)
        for index, group in enumerate(entries.group_names):
            column = _column(entries, index, group.name, waits, updates)
            if column is not None:
                columns.setdefault(group.name, {})[rank] = column
            members.setdefault(group.name, set()).update(dump.members.get(group.name, (rank,)))
    groups = {
        name: ranks
        for name, ranks in columns.items()
        if len(ranks) > 1 and not members[name] - set(ranks)
    }
    if not groups:
        return None
    origin = min(int(c.entered.min()) for ranks in groups.values() for c in ranks.values())
    found = [m for name, ranks in sorted(groups.items()) if (m := _align(name, ranks, origin))]
    return Timeline(origin, found) if found else None


@dataclass
class _NumberedCalls:
    """One rank's operations of one group, by sequence number."""

    seq: npt.NDArray[np.int64]
    entered: npt.NDArray[np.int64]
    #: 0 where not known.
    left: npt.NDArray[np.int64]
    #: When the rank began to wait for the operation; 0 where not known.
    waited: npt.NDArray[np.int64]
    backward: Bool
    argument: npt.NDArray[np.int32]
    #: Steps of the optimizer that the rank had begun before it entered; -1 where not known.
    update: npt.NDArray[np.int64]


def _waits(progress: Progress | None) -> dict[tuple[str, int], tuple[int, int]]:
    """(begin, end) of the wait for an operation, by its group and its number within it."""
    if progress is None:
        return {}
    return {
        (o.group, o.group_seq + 1): (o.wait_entered_ns, o.wait_returned_ns)
        for o in progress.operations
        if o.group_seq is not None and o.wait_entered_ns and o.wait_returned_ns and not o.failed
    }


def updates_of(progress: Progress | None) -> list[tuple[int, int]]:
    """Begin and duration of each of the optimizer's steps, oldest first; of outer ones only."""
    if progress is None:
        return []
    names = {t.section for t in progress.section_totals if t.kind == "update"}
    events = sorted(
        (e.started_ns, e.wall_ns) for e in progress.section_events if e.section in names
    )
    outer: list[tuple[int, int]] = []
    for started, wall in events:
        if not outer or started >= outer[-1][0] + outer[-1][1]:
            outer.append((started, wall))
    return outer


def _column(
    entries: Entries,
    index: int,
    group: str,
    waits: Mapping[tuple[str, int], tuple[int, int]],
    updates: Sequence[tuple[int, int]],
) -> _NumberedCalls | None:
    chosen = np.flatnonzero(
        (entries.group == index) & ~entries.is_p2p & (entries.created_ns > 0) & (entries.seq >= 0)
    )
    # A number may stand twice: coalesced operations share theirs.
    _, first = np.unique(entries.seq[chosen], return_index=True)
    chosen = chosen[first][-LATEST_COLLECTIVES:]
    if not len(chosen):
        return None
    backward = np.array([_from_backward(stack) for stack in entries.stacks] + [False])
    blocking = np.array(
        [backend_of(operation.backend).blocking for operation in entries.operations]
    )
    left = np.maximum(entries.completed_ns[chosen], 0)
    waited = np.zeros(len(chosen), dtype=np.int64)
    if waits:
        # Elsewhere a wait returns before the operation is done.
        for place, row in enumerate(chosen.tolist()):
            wait = waits.get((group, int(entries.op_id[row])))
            if wait is not None and blocking[entries.operation[row]]:
                waited[place], left[place] = wait
    entered = entries.created_ns[chosen]
    update = np.full(len(chosen), -1, dtype=np.int64)
    reduced = backward[entries.stack[chosen]]
    if updates:
        starts = np.array([*(started for started, _ in updates), 0])
        update = np.searchsorted(starts[:-1], entered)
        # The optimizer steps once all reductions are done: the next best thing to their end.
        left = np.where((left == 0) & reduced, starts[update], left)
    return _NumberedCalls(
        seq=entries.seq[chosen],
        entered=entered,
        left=left,
        waited=waited,
        backward=reduced,
        argument=entries.argument[chosen],
        update=update,
    )


def _from_backward(stack: Sequence[object]) -> bool:
    return bool(stack) and str(getattr(stack[0], "file", "")).endswith(_BACKWARD)


def _align(
    group: str, ranks: Mapping[int, _NumberedCalls], origin: int
) -> AlignedCollectives | None:
    members = sorted(ranks)
    common = reduce(np.intersect1d, (ranks[r].seq for r in members))
    if not len(common):
        return None
    places = [np.searchsorted(ranks[r].seq, common) for r in members]

    def lay(name: str) -> npt.NDArray[np.int64]:
        return np.stack(
            [getattr(ranks[r], name)[p] for r, p in zip(members, places, strict=True)], axis=1
        )

    entered = lay("entered")
    order = np.argsort(entered.max(axis=1), kind="stable")
    entered = entered[order]
    left, waited = lay("left")[order], lay("waited")[order]
    backward: Bool = np.asarray(lay("backward")[order].any(axis=1))
    return AlignedCollectives(
        group=group,
        members=members,
        seq=common[order],
        entered=(entered - origin).astype(np.float64),
        left=np.where(left > 0, (left - origin).astype(np.float64), np.nan),
        chained=_chained(
            entered, waited, backward, lay("update")[order], lay("argument")[order][:, 0]
        ),
    )


def _chained(
    entered: npt.NDArray[np.int64],
    waited: npt.NDArray[np.int64],
    backward: Bool,
    update: npt.NDArray[np.int64],
    argument: npt.NDArray[np.int64],
) -> Bool:
    """Operations whose members enter the next before they wait for this one, shape (n,).

    Certain where a member began to wait later than it entered the next one.
    Torch's reducer waits for none before the backward pass ends: that is where
    an optimizer's step follows or, without any, where the buckets begin anew.
    Of several passes before one step of the optimizer, such as of microbatches,
    each ends by a wait.
    """
    chained = np.zeros(len(entered), dtype=np.bool_)
    if len(entered) < 2:
        return chained
    chained[:-1] = (waited[:-1] > entered[1:] + SAME_HOST_CLOCK_NS).any(axis=1)
    together = backward[:-1] & backward[1:]
    known: Bool = np.asarray((update >= 0).all(axis=1))
    same_update: Bool = np.asarray((update[:-1] == update[1:]).all(axis=1))
    same_update &= ~_waited_for(entered, together & same_update)
    first = 0
    for place in np.flatnonzero(together).tolist():
        if known[place] and known[place + 1]:
            chained[place] |= same_update[place]
            continue
        if place and not chained[place - 1]:
            first = place
        chained[place] |= argument[place + 1] != argument[first]
    return chained


def _waited_for(entered: npt.NDArray[np.int64], followed: Bool) -> Bool:
    """Operations of a step that members do wait for before the next one of it, shape (n - 1,).

    ``followed``: those that the next one of the step comes behind.  One place in the step is looked
    at in all steps: where a member was so late that its peers, who had no more to do in between
    than it, would have gone on without it, and none ever did.
    """
    rows = np.flatnonzero(followed)
    begins = np.flatnonzero(~followed)
    # Places count from behind the latest operation that ended its step.
    ended = np.searchsorted(begins, rows)
    place = rows - np.where(ended > 0, begins[ended - 1] if len(begins) else 0, -1)
    latest = entered[rows].argmax(axis=1)
    released = entered[rows, latest]
    lag = released - entered[rows].min(axis=1)
    late = lag > LATE_GAPS * (entered[rows + 1, latest] - released) + SAME_HOST_CLOCK_NS
    kept = entered[rows + 1].min(axis=1) >= released - SAME_HOST_CLOCK_NS
    waited = np.zeros(len(followed), dtype=np.bool_)
    for one in np.unique(place):
        telling = late & (place == one)
        if telling.sum() >= FEWEST_LATE and kept[telling].all():
            waited[rows[place == one]] = True
    return waited
