"""Members of a gather or scatter that take themselves for its root.

NCCL's buffers name no root, but only a root has a place for each member's part.
"""

from __future__ import annotations

from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.thresholds import COMPARED_SPLITS
from hanglab.recorder.case.operations import op_of


def find_root_conflict(group: ResolvedGroup, lookup: CallLookup) -> Divergence | None:
    """A divergence at the oldest unfinished gather or scatter of which several are the root.

    One of them is right, and no peer's call tells which.
    """
    size = len(group.members)
    unfinished = [min(s.unfinished) for s in group.progress.values() if s.unfinished]
    if not unfinished or not 1 < size <= COMPARED_SPLITS:
        return None
    seq = min(unfinished)
    lookup.prefetch(group.members)
    found = {rank: lookup.collective(rank, group, seq) for rank in group.members}
    calls = {rank: call for rank, call in found.items() if call is not None}
    roots = tuple(rank for rank, call in calls.items() if _is_root(call, size))
    if len(roots) < 2 or len({call.op for call in calls.values()}) > 1:
        return None
    return Divergence(
        group=group.group,
        seq=seq,
        difference=Difference.ROOT,
        calls=calls,
        deviating=(),
        candidates=roots,
    )


def _is_root(call: Call, size: int) -> bool:
    """True if a member has a tensor for each part that a root takes, or gives."""
    spec, arguments = op_of(call.op), call.arguments
    if not spec.rooted or not (spec.gathers or spec.scatters):
        return False
    return len(arguments.output_sizes if spec.gathers else arguments.input_sizes) == size
