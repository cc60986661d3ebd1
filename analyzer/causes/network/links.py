"""The network between ranks, judged by the sockets of both ends.

A process that does not read fills its own window: its peer then waits with a
probe timer and nothing to send again.  Only a network that loses what is sent
makes the kernel send the same segment again and again, each time later.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.links import Link, SocketEnd, latest, links_of
from hanglab.analyzer.facts.resource_failures import size
from hanglab.analyzer.graph.wait_for_graph import Call
from hanglab.analyzer.proposal import Order, Proposal, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.recorder.slowness.thresholds import LOSS_SHARE

#: Retransmissions in a row, each twice as late as the one before: 1.4 s at the least.
_IN_A_ROW = 3
#: Bytes a second that no sound link between hosts of a training job stays below when it
#: has something to send all the time.
_SLOW_BYTES_S = 4e6
#: Against the median of the job's other links, where there are any.
_SLOWER = 4.0
#: Share of the time in which the sender had something to send, and of that share in which
#: the receiver or the sender itself held it up.
_BUSY = 0.5
_HELD_UP = 0.2
#: Share of what came in that a receiver who reads all of it may not have read at the moment.
_UNREAD = 0.05
#: Bytes on the way below which a receiver may still hold its acknowledgement back.
_FEW_BYTES = 4 * 1448
#: Operations whose arguments are all in a buffer, so that no root can differ unseen.
_ROOTLESS = frozenset(
    {"all_reduce", "all_gather", "_all_gather_base", "all_gather_into_tensor", "reduce_scatter",
     "_reduce_scatter_base", "reduce_scatter_tensor", "all_to_all", "barrier"}
)  # fmt: skip


def partition(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks that send the same again and again to ranks that live and have nothing to read."""
    if not facts.stuck:
        return
    links = links_of(facts.ranks)
    cut: dict[frozenset[int], Evidence] = {}
    #: (from, to) of what gets lost on its way.
    ways: set[tuple[int, int]] = set()
    for link in links:
        for sender, receiver in link.directions:
            if _lost(sender) and _at_work(facts, receiver.rank):
                cut.setdefault(frozenset(link.ranks), _unheard(sender, receiver))
                here, there = sender.rank, receiver.rank
                ways.add((there, here) if _arrived(sender, receiver) else (here, there))
    if not cut:
        return
    culprits = _cut_off(facts, set(cut), {frozenset(link.ranks) for link in links})
    call = _stalled(facts, culprits)
    others = facts.others(*culprits)
    among = all(pair <= set(culprits) for pair in cut)
    apart = " from each other" if among or not others else f" from {name_ranks(others)}"
    yield propose(
        facts,
        Order.STALLED,
        Cause.PARTITION,
        culprits,
        status=Status.HUNG,
        confidence=0.95,
        summary=f"The network cuts {name_ranks(culprits)} off{apart}: {_which(culprits, ways)} is "
        "sent again and again and never acknowledged.",
        evidence=list(cut.values()),
        victims=others,
        collective=collective_ref(call) if call is not None else None,
    )


def _which(culprits: list[int], ways: set[tuple[int, int]]) -> str:
    """What gets lost, where all that does goes the same way."""
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
    """Whether the receiver's kernel has more than it was able to acknowledge.

    The sender's count of acknowledged bytes includes the opening of the connection.
    """
    acknowledged, received = sender.now.sent_bytes, receiver.now.received_bytes
    return acknowledged is not None and received is not None and received > acknowledged


def _lost(end: SocketEnd) -> bool:
    now = end.now
    return (
        now.state == "ESTABLISHED"
        and now.retransmitting
        and now.backoff >= _IN_A_ROW
        and now.send_queue > 0
    )


def _at_work(facts: CaseFacts, rank: int) -> bool:
    """Whether a rank lives and could have read: the fault is not its own."""
    view = facts.ranks[rank]
    return view.ended is None and view.state not in ("T", "t", "Z", "X")


def _cut_off(facts: CaseFacts, cut: set[frozenset[int]], linked: set[frozenset[int]]) -> list[int]:
    """The fewest ranks that are an end of every cut; all ends where several sets are as small."""
    ends = sorted({rank for pair in cut for rank in pair})
    for number in range(1, len(ends)):
        covers = [c for c in combinations(ends, number) if all(pair & set(c) for pair in cut)]
        # Whoever still talks to the rest soundly is not cut off.
        covers = [c for c in covers if not _talks(set(c), cut, linked, set(facts.ranks))]
        if len(covers) == 1:
            return list(covers[0])
        if covers or number == 3:
            break
    return ends


def _talks(
    side: set[int], cut: set[frozenset[int]], linked: set[frozenset[int]], ranks: set[int]
) -> bool:
    """Whether a link between the side and the rest is sound, and so disproves the cut."""
    return any(pair & side and pair & (ranks - side) for pair in linked - cut)


def _stalled(facts: CaseFacts, ranks: list[int]) -> Call | None:
    if facts.graph.stalled:
        return facts.graph.stalled[0].call
    return next((call for rank in ranks if (call := facts.blocked(rank)) is not None), None)


def slow_link(facts: CaseFacts) -> Iterator[Proposal]:
    """A link that always has something to send and gets little through, by nobody's doing."""
    if facts.stuck or any(v.failed for v in facts.ranks.values()):
        return
    slow: list[tuple[Link, SocketEnd, float]] = []
    rates: dict[frozenset[int], float] = {}
    for link in links_of(facts.ranks):
        for sender, receiver in link.directions:
            rate = _rate(sender)
            if rate is None:
                continue
            pair = frozenset(link.ranks)
            rates[pair] = max(rate, rates.get(pair, 0.0))
            if _congested(sender, receiver) and rate <= _SLOW_BYTES_S:
                slow.append((link, sender, rate))
    pairs = {frozenset(link.ranks) for link, _, _ in slow}
    healthy = [rate for pair, rate in rates.items() if pair not in pairs]
    slow = [row for row in slow if not healthy or row[2] * _SLOWER <= max(healthy)]
    share = max((_cost(sender) for _, sender, _ in slow), default=0.0)
    if not slow or share < LOSS_SHARE:
        return
    linked = {frozenset(link.ranks) for link in links_of(facts.ranks)}
    culprits = _cut_off(facts, {frozenset(link.ranks) for link, _, _ in slow}, linked)
    rate = min(rate for _, _, rate in slow)
    yield propose(
        facts,
        Order.SLOW,
        Cause.SLOW_LINK,
        culprits,
        status=Status.SLOW,
        confidence=0.9,
        summary=f"The link of {name_ranks(culprits)} carries {size(int(rate))} a second and is "
        f"busy {share:.0%} of the time; the job waits for it.",
        evidence=[
            Evidence(
                "sockets",
                sender.rank,
                f"had something to send to {sender.now.remote} {_busy(sender):.0%} of the time, "
                f"and got {size(int(rate))} a second through; round trips take "
                f"{sender.now.rtt_ms or 0:.1f} ms, {sender.now.least_rtt_ms or 0:.1f} ms at best; "
                f"{sender.grown('retransmitted'):.0f} segments were sent again",
            )
            for _, sender, rate in slow
        ],
        effect=Effect(section=None, ms_per_step=0.0, share_of_step=round(share, 4)),
    )


def _rate(end: SocketEnd) -> float | None:
    """Bytes a second while it had something to send; None where it hardly ever had."""
    busy = end.grown("busy_s")
    sent = end.grown("sent_bytes")
    return sent / busy if busy > 0.05 and sent else None


def _busy(end: SocketEnd) -> float:
    """Share of the time in which the job used the link at all."""
    return min(1.0, end.grown("busy_s") / end.active_s) if end.active_s > 0 else 0.0


def _cost(end: SocketEnd) -> float:
    """Share of all the time in which it was seen."""
    return min(1.0, end.grown("busy_s") / end.seconds) if end.seconds > 0 else 0.0


def _congested(sender: SocketEnd, receiver: SocketEnd) -> bool:
    """Always something on the way, and neither end holds it up."""
    busy = sender.grown("busy_s")
    held = sender.grown("peer_limited_s") + sender.grown("buffer_limited_s")
    return (
        _busy(sender) >= _BUSY
        and held <= _HELD_UP * busy
        and receiver.now.receive_queue <= _UNREAD * sender.grown("sent_bytes")
        and sender.active_s >= 1.0
        and not _waits_for_receipts(sender)
    )


def _waits_for_receipts(sender: SocketEnd) -> bool:
    """Whether little is on the way at a time: two segments, or the odd one out of a few.

    The receiver may take its time, 40 ms or more, to acknowledge those: no link is slow then.
    """
    rate, rtt_ms = _rate(sender), sender.now.rtt_ms
    return rate is not None and rtt_ms is not None and rate * rtt_ms / 1e3 < _FEW_BYTES


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
    if call.op not in _ROOTLESS or not backends or not all("nccl" in b for b in backends):
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
