"""Messages without their other half, which alone explain all that is open.

A message whose half lacks holds up what its stream has behind it, whoever meets that, and the hosts
that wait for it.  Where one explains all else, one of its two ends departed from the program:
nothing else of what is open lacks anything.  Unless the other end has but stopped on its way there:
it is past the message if it has issued a collective that comes behind that, or if the message is
none of the rounds of the rank that waits in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hanglab.analyzer.graph.batches import may_lack_members
from hanglab.analyzer.graph.launches import Launch, LaunchId, explains_all, open_launches
from hanglab.analyzer.graph.thresholds import EXPLAINING_RANKS
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.merging import MergedSummaries


def find_unanswered_message(
    merged: MergedSummaries,
    waits: OpenOperations,
    lookup: CallLookup,
    left_rounds_at: Callable[[int], int | None],
) -> OpenOperation | None:
    """The message without its other half that explains all that is open; None without one.

    One of several, where all are between the same two ranks.  ``left_rounds_at`` gives the index of
    the entry at which a rank left its own rounds.
    """
    if any(w.explained or w.any_source or w.group.doubtful for w in waits.operations.values()):
        return None
    if waits.unordered or waits.unsettled:
        return None  # Operations of hosts do not queue, and whoever went on may do something else.
    launches = open_launches(merged, waits)
    by_rank: dict[int, list[Launch]] = {}
    for launch in launches.values():
        by_rank.setdefault(launch.rank, []).append(launch)
    lacking = [one for one in launches.values() if one.absent]
    if len(lacking) > EXPLAINING_RANKS or any(one.unknown for one in launches.values()):
        return None
    roots = [one for one in lacking if explains_all(one, launches, by_rank)]
    if not roots or len({frozenset((one.rank, *one.absent)) for one in roots}) != 1:
        return None
    if len(roots) > 1 and not all(_keeps_others(one, launches, by_rank) for one in roots):
        return None  # What is but posted keeps nobody, and its host may have stopped.
    root = roots[0]
    mine = [w for p, w in waits.by_rank[root.rank] if p.order == root.order and w.absent]
    messages = [w for w in mine if w.seq is None and w.peer is not None]
    if not len(mine) == len(messages) == 1:
        return None
    (message,) = messages
    if may_lack_members((root.rank, root.order), waits, merged, lookup):
        return None  # One of those may be the one that lacks.
    if not (message.certain or root.started or root.overtaken):
        return None  # Its half may have come and gone, and the device of its rank have stopped.
    batch = [w for p, w in waits.by_rank[root.rank] if p.order == root.order]
    if not message.certain and len({w.peer for w in batch}) > 1:
        return None  # Another one of its batch may keep it, as one that its peer takes otherwise.
    left = left_rounds_at(root.rank) == message.waiters[root.rank].index
    return message if left or _is_past(message, waits) else None


def _is_past(message: OpenOperation, waits: OpenOperations) -> bool:
    """True if the other end has issued a collective that the rank has behind its message."""
    ((rank, pending),) = message.waiters.items()
    return any(
        other.seq is not None
        and message.peer in other.waiters
        and rank in other.waiters
        and other.waiters[rank].order > pending.order
        for other in waits.operations.values()
    )


def _keeps_others(
    root: Launch, launches: Mapping[LaunchId, Launch], by_rank: Mapping[int, list[Launch]]
) -> bool:
    """True if a later launch of its rank lacks nothing, and is behind it alone."""
    for launch in by_rank[root.rank]:
        if launch.order <= root.order or launch.absent or not launch.meets:
            continue
        before = [one for one in by_rank[root.rank] if one.order < launch.order]
        met = [launches[one] for part in launch.meets for one in part if one[0] != launch.rank]
        free = all(min(o.order for o in by_rank[one.rank]) == one.order for one in met)
        if before == [root] and free:
            return True
    return False
