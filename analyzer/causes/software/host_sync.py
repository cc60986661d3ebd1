"""``host_sync``: a host waits for its device, and so never launches what would free the device.

The device waits in an operation for a peer; the peer waits for an operation that this host has not
launched yet.  Nothing but the host's own wait holds that launch back.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.device_waits import device_wait
from hanglab.analyzer.graph.wait_for_graph import Wait
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import INFERRED
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_line, name_ranks


@detector_of(Cause.HOST_SYNC)
def host_sync(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks in a device synchronisation whose next launch is what their own device waits for."""
    for view in facts.ranks.values():
        waits_in = device_wait(view) if view.ended is None else ""
        closed = _closed_by(facts, view.rank) if waits_in else None
        if closed is None:
            continue
        mine, missing = closed
        line = name_line(view.location())
        yield propose(
            facts,
            Cause.HOST_SYNC,
            [view.rank],
            status=Status.HUNG,
            confidence=INFERRED,
            summary=f"Rank {view.rank} waits for its device{line} in {waits_in}(), whose "
            f"{mine.op} waits for {name_ranks(_peers(mine))}; the part in {missing.call.op} that "
            f"would free rank {missing.call.rank} is not launched, as the host waits.",
            evidence=[
                Evidence("stack", view.rank, f"its main thread is in {waits_in}(){line}"),
                Evidence("flight_recorder", view.rank, f"its {mine.op} has not finished"),
                Evidence(
                    "flight_recorder",
                    missing.call.rank,
                    f"waits in {missing.call.op} for rank {view.rank}, which has not launched it",
                ),
            ],
            location=view.location(),
            collective=collective_ref(missing.call),
        )


def _closed_by(facts: CaseFacts, rank: int) -> tuple[Call, Wait] | None:
    """(an operation of the rank's device, the wait of a peer for what its host has not launched).

    The peer's wait must be behind the operation: then only the launch can end both.  Whoever is
    known to have sent to another, or left a message out, may wait for what nobody would launch,
    and so may who waits for one of those.
    """
    departed = [unmatched for unmatched in facts.graph.unmatched if unmatched.deviating]
    astray = {rank for one in departed for rank in (*one.deviating, one.call.rank)}
    for call in facts.graph.unfinished.get(rank, []):
        if not all(_launched(facts, peer, call) for peer in _peers(call)):
            continue  # their hosts are what is late
        reached = _waiting_for(facts, set(_peers(call)))
        for wait in facts.graph.waits:
            behind = rank in wait.on and wait.call.rank in reached
            owed = wait.call.seq is not None or wait.call.rank not in astray
            if behind and owed and not _launched(facts, rank, wait.call):
                return call, wait
    return None


def _peers(call: Call) -> list[int]:
    """Members that the operation needs besides the rank itself."""
    needed = [call.peer] if call.peer is not None else list(call.group.members)
    return sorted(set(needed) - {call.rank})


def _waiting_for(facts: CaseFacts, ranks: set[int]) -> set[int]:
    """Ranks and all that they wait for."""
    found, pending = set[int](), list(ranks)
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += [on for wait in facts.graph.waits if wait.call.rank == one for on in wait.on]
    return found


def _launched(facts: CaseFacts, rank: int, awaited: Call) -> bool:
    """True if the rank's host has launched its part, so that its device is what is late."""
    for call in facts.graph.unfinished.get(rank, []):
        if call.group != awaited.group:
            continue
        if awaited.seq is not None and call.seq == awaited.seq:
            return True
        # A send meets a receive; two of one kind do not.
        if awaited.seq is None and call.peer == awaited.rank and call.op != awaited.op:
            return True
    return False
