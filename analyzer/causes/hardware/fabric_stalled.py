"""``fabric_stalled``: everybody is inside the same operation, and all that can be seen is sound."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.links import latest
from hanglab.analyzer.operations import op_of
from hanglab.analyzer.proposal import Order, Proposal, detector, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.recorder.case.backends import backends_in


@detector
def fabric_stalled(facts: CaseFacts) -> Iterator[Proposal]:
    """NCCL's own transport: everybody is inside one operation, and all else is proved sound.

    Their arguments are matched, they hold no root that could differ, all
    processes live and run, every socket between ranks is idle and acknowledged.
    """
    if not facts.stuck or not facts.graph.stalled or facts.graph.sinks:
        return
    call = facts.graph.stalled[0].call
    members = [facts.ranks.get(rank) for rank in call.group.members]
    backends = {g.backend for v in members if v for g in v.groups if g.id == call.group.name}
    enqueued = [any(one.enqueued for one in backends_in(setting)) for setting in backends]
    # Their arguments are all in a buffer: no root can differ unseen.
    if not op_of(call.op).rootless or not enqueued or not all(enqueued):
        return
    for view in members:
        if view is None or view.ended is not None or view.state not in ("R", "S"):
            return
        sample = latest(view.connections)
        if sample is None or not sample.capture or sample.source != "sock_diag":
            return
        if any(c.send_queue or c.retransmitting for c in sample.connections if c.state != "LISTEN"):
            return
    yield propose(
        facts,
        Order.STALLED,
        Cause.FABRIC_STALLED,
        list(call.group.members),
        status=Status.HUNG,
        confidence=0.7,
        summary=f"All ranks are inside the same {call.op} with the same arguments, their processes "
        "run and their sockets are sound; what NCCL talks over does not move.",
        evidence=[
            Evidence("sockets", rank, "no unacknowledged byte, no retransmission")
            for rank in call.group.members
        ],
        victims=[],
        collective=collective_ref(call),
    )
