"""``fabric_stalled``: what NCCL talks over has failed, or does not move although all is sound.

Whose fault that is no rank can tell, so nobody is accused.  Idle TCP connections say nothing of
InfiniBand, NVLink or shared memory: a fabric is judged by evidence of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.device_progress import all_started
from hanglab.analyzer.facts.error_texts import Kind, texts_of
from hanglab.analyzer.facts.links import latest
from hanglab.analyzer.facts.port_events import port_down
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import INFERRED, PLAUSIBLE
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.backends import backends_in
from hanglab.recorder.case.operations import op_of

_SAID = texts_of(Cause.FABRIC_STALLED, Kind.ROOT)


@detector
def fabric_stalled(facts: CaseFacts) -> Iterator[Proposal]:
    """NCCL over sockets: everybody's device is in one operation, and all else is proved sound.

    Every socket between ranks is idle and acknowledged.
    """
    call = _common_operation(facts)
    if call is None:
        return
    known = [facts.ranks[rank] for rank in call.group.members]
    for view in known:
        sample = latest(view.connections)
        if sample is None or not sample.capture or sample.source != "sock_diag":
            return
        if any(c.send_queue or c.retransmitting for c in sample.connections if c.state != "LISTEN"):
            return
    if not _over_sockets(known):
        return
    yield propose(
        facts,
        Cause.FABRIC_STALLED,
        [],
        status=Status.HUNG,
        confidence=PLAUSIBLE,
        summary=f"The devices of all ranks are inside the same {call.op} with the same arguments, "
        "their processes run and the sockets that NCCL talks over are sound: the library does not "
        "move.",
        evidence=[
            Evidence("sockets", rank, "no unacknowledged byte, no retransmission")
            for rank in call.group.members
        ],
        victims=call.group.members,
        collective=collective_ref(call),
    )


@detector
def link_down(facts: CaseFacts) -> Iterator[Proposal]:
    """Everybody's device is in one operation, and NCCL warned of a port that is down still."""
    call = _common_operation(facts)
    if call is None:
        return
    down = {
        rank: line
        for rank in call.group.members
        if (line := port_down(facts.ranks[rank].stderr)) is not None
    }
    if not down:
        return
    yield propose(
        facts,
        Cause.FABRIC_STALLED,
        [],
        status=Status.HUNG,
        confidence=INFERRED,
        summary=f"The devices of all ranks are inside the same {call.op} with the same arguments, "
        f"and a port of {name_ranks(sorted(down))} went down and has not come back.",
        evidence=[Evidence("stderr", rank, line) for rank, line in sorted(down.items())],
        victims=call.group.members,
        collective=collective_ref(call),
    )


def _common_operation(facts: CaseFacts) -> Call | None:
    """The operation that the devices of all members of its group are known to be inside.

    Their arguments are matched, they hold no root that could differ, all processes live and run.
    """
    if not facts.stuck or not facts.graph.stalled or facts.graph.sinks:
        return None
    call = facts.graph.stalled[0].call
    if call.seq is None:
        return None  # two are in it, and others elsewhere
    members = [facts.ranks.get(rank) for rank in call.group.members]
    backends = {g.backend for v in members if v for g in v.groups if g.id == call.group.name}
    enqueued = [any(one.enqueued for one in backends_in(setting)) for setting in backends]
    # Their arguments are all in a buffer: no root can differ unseen.
    if not op_of(call.op).rootless or not enqueued or not all(enqueued):
        return None
    for view in members:
        if view is None or view.ended is not None or view.state not in ("R", "S"):
            return None
    return call if all_started(facts, call) else None


def _over_sockets(members: list[RankView]) -> bool:
    """True if the ranks' environment leaves NCCL no other way than TCP."""
    settings = [v.process.environment if v.process is not None else {} for v in members]
    hosts = {s.get("NCCL_HOSTID", v.host) for s, v in zip(settings, members, strict=True)}
    apart = len(hosts) == len(members)
    return all(
        (s.get("NCCL_NET") == "Socket" or s.get("NCCL_IB_DISABLE") == "1")
        and (apart or s.get("NCCL_P2P_DISABLE") == s.get("NCCL_SHM_DISABLE") == "1")
        for s in settings
    )


@detector
def fabric_errors(facts: CaseFacts) -> Iterator[Proposal]:
    """Work requests that the fabric gave back undone, by the logs of either end.

    A peer that has gone looks the same from here, so nobody else may have failed of its own.
    """
    said = {
        rank: line.strip()[:300]
        for rank, view in facts.ranks.items()
        for line in reversed(view.stderr.splitlines())
        if _SAID.search(line)
    }
    found = failures(facts)
    for failure in found:
        if _SAID.search(failure.detail):
            said.setdefault(failure.view.rank, failure.detail)
    if not said or not (facts.stuck or found):
        return
    gone = [view for view in facts.ranks.values() if view.ended is not None and not view.failed]
    if gone or any(not failure.consequence for failure in found):
        return
    first = min(said)
    yield propose(
        facts,
        Cause.FABRIC_STALLED,
        [],
        failure_on_record=True,
        confidence=INFERRED,
        summary=f"What NCCL talks over gave rank {first}'s work back undone: {said[first]}",
        evidence=[Evidence("stderr", rank, line) for rank, line in sorted(said.items())],
        victims=sorted(facts.ranks),
    )
