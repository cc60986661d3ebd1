"""Sends whose Work nobody kept, so that gloo withdrew them before the receiver was there.

On gloo a send goes out once the receiver asks for it, from a buffer that lives as long as its Work.
``dist.isend(...)`` without a name for what it gives is sent only if the receiver was first.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import INFERRED
from hanglab.analyzer.verdict import Cause, Evidence, Location
from hanglab.analyzer.wording import LET_GO, name_line
from hanglab.recorder.case.progress_records import OperationCall

_ADVICE = (
    "Keep what isend returns, and its tensor, until its wait() has returned: on gloo a send that "
    "nobody holds is withdrawn."
)


@detector
def dropped_sends(facts: CaseFacts) -> Iterator[Proposal]:
    """``p2p_unmatched`` of who let a send go for which the receiver waits."""
    for stalled in facts.graph.stalled:
        call = stalled.call
        sender = facts.ranks.get(call.peer if call.peer is not None else -1)
        if call.seq is not None or sender is None or not _is_gloo(sender, call):
            continue
        send = _half(facts, call, sender)
        if send is None or not send.dropped or send.completed:
            continue
        location = Location(send.file, send.line, send.function, sender.rank)
        yield propose(
            facts,
            Cause.P2P_UNMATCHED,
            [sender.rank],
            confidence=INFERRED,
            summary=f"Rank {sender.rank} {LET_GO} rank {call.rank} waits for in "
            f"{name_call(call)}: its Work was dropped, and nobody waited for it"
            f"{name_line(location)}.",
            evidence=[
                Evidence("progress", sender.rank, f"dropped a send's Work{name_line(location)}"),
                Evidence("flight_recorder", call.rank, f"waits in {name_call(call)}"),
            ],
            location=location,
            collective=collective_ref(call),
            advice=_ADVICE,
        )


def _is_gloo(view: RankView, call: Call) -> bool:
    settings = {one.backend for one in view.groups if one.id == call.group.name}
    return bool(settings) and all("gloo" in one and "nccl" not in one for one in settings)


def _half(facts: CaseFacts, call: Call, sender: RankView) -> OperationCall | None:
    """The send that the receive was to take, by its place among those of the two; None if lost."""
    receiver, members = facts.ranks.get(call.rank), call.group.members
    if receiver is None or not {call.rank, sender.rank} <= set(members):
        return None
    sent = _messages(sender, "send", call, members.index(call.rank))
    taken = _messages(receiver, "recv", call, members.index(sender.rank))
    if sent is None or taken is None:
        return None
    done = sum(one.wait_returned_ns is not None or one.completed for one in taken)
    waiting = taken[done:]
    # Of several that wait nothing tells which comes first.
    return sent[done] if len(waiting) == 1 and done < len(sent) else None


def _messages(view: RankView, method: str, call: Call, peer: int) -> list[OperationCall] | None:
    """Messages of the rank to or from a peer, with the call's tag; None where some may be lost."""
    progress = view.progress
    if progress is None or progress.operations_total > len(progress.operations):
        return None
    found = [
        one
        for one in progress.operations
        if one.group == call.group.name and one.method.startswith(method) and one.peer == peer
    ]
    return [one for one in found if one.tag == call.tag]
