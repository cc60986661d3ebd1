"""``partition``: the network between ranks carries nothing, by the sockets of both ends."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.cut_links import cut_off_ranks, lossy_directions
from hanglab.analyzer.facts.links import SocketEnd, links_of
from hanglab.analyzer.facts.resource_failures import size
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import SHOWN
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_ranks


@detector
def partition(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks that send the same again and again to ranks that live and have nothing to read."""
    cut: dict[frozenset[int], Evidence] = {}
    #: (from, to) of what gets lost on its way.
    ways: set[tuple[int, int]] = set()
    for sender, receiver in lossy_directions(facts):
        here, there = sender.rank, receiver.rank
        cut.setdefault(frozenset((here, there)), _unheard(sender, receiver))
        ways.add((there, here) if _arrived(sender, receiver) else (here, there))
    if not cut:
        return
    linked = {frozenset(link.ranks) for link in links_of(facts.ranks)}
    culprits = cut_off_ranks(facts, set(cut), linked)
    call = _stalled(facts, culprits)
    others = facts.others(*culprits)
    among = all(pair <= set(culprits) for pair in cut)
    apart = " from each other" if among or not others else f" from {name_ranks(others)}"
    yield propose(
        facts,
        Cause.PARTITION,
        culprits,
        status=Status.HUNG,
        confidence=SHOWN,
        summary=f"The network cuts {name_ranks(culprits)} off{apart}: {_which(culprits, ways)} is "
        "sent again and again and never acknowledged.",
        evidence=list(cut.values()),
        victims=others,
        collective=collective_ref(call) if call is not None else None,
    )


def _which(culprits: list[int], ways: set[tuple[int, int]]) -> str:
    """Words for what gets lost, where all that does goes the same way."""
    if len(culprits) == 1:
        if all(sender == culprits[0] for sender, _ in ways):
            return "all that it sends gets lost, and what its peers send it"
        if all(receiver == culprits[0] for _, receiver in ways):
            return "nothing reaches it, and what is sent to it"
    return "what is sent"


def _unheard(sender: SocketEnd, receiver: SocketEnd) -> Evidence:
    there = (
        "has it all, and its acknowledgements get lost"
        if _arrived(sender, receiver)
        else f"has {size(receiver.now.receive_queue)} to read"
    )
    return Evidence(
        "sockets",
        sender.rank,
        f"sent {size(sender.now.send_queue)} to rank {receiver.rank} ({sender.now.local} to "
        f"{sender.now.remote}), again {sender.now.backoff} times in a row, and nothing was "
        f"acknowledged; the other end {there}",
    )


def _arrived(sender: SocketEnd, receiver: SocketEnd) -> bool:
    """True if the receiver's kernel has more than it was able to acknowledge.

    The sender's count of acknowledged bytes includes the opening of the connection.
    """
    acknowledged, received = sender.now.sent_bytes, receiver.now.received_bytes
    return acknowledged is not None and received is not None and received > acknowledged


def _stalled(facts: CaseFacts, ranks: list[int]) -> Call | None:
    if facts.graph.stalled:
        return facts.graph.stalled[0].call
    return next((call for rank in ranks if (call := facts.blocked(rank)) is not None), None)
