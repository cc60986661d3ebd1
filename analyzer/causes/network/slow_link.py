"""``slow_link``: a link that always has something to send and gets little through."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import (
    ACKNOWLEDGED_LATE,
    BUSY_LINK,
    HELD_UP_LINK,
    LOOPBACK_SEGMENT_BYTES,
    SEGMENT_BYTES,
    SHORTEST_BUSY_S,
    SHORTEST_WATCH_S,
    SLOW_LINK_BYTES_S,
    SLOWER_LINK,
    UNREAD_SHARE,
)
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.cut_links import cut_off_ranks
from hanglab.analyzer.facts.links import Link, SocketEnd, links_of
from hanglab.analyzer.facts.resource_failures import size
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import SEEN
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.slowness.thresholds import LOSS_SHARE


@detector_of(Cause.SLOW_LINK)
def slow_link(facts: CaseFacts) -> Iterator[Proposal]:
    """A link that always has something to send and gets little through, by nobody's doing."""
    slow: list[tuple[Link, SocketEnd, float]] = []
    rates: dict[frozenset[int], float] = {}
    for link in links_of(facts.ranks):
        for sender, receiver in link.directions:
            rate = _rate(sender)
            if rate is None:
                continue
            pair = frozenset(link.ranks)
            rates[pair] = max(rate, rates.get(pair, 0.0))
            if _congested(sender, receiver) and rate <= SLOW_LINK_BYTES_S:
                slow.append((link, sender, rate))
    pairs = {frozenset(link.ranks) for link, _, _ in slow}
    healthy = [rate for pair, rate in rates.items() if pair not in pairs]
    slow = [row for row in slow if not healthy or row[2] * SLOWER_LINK <= max(healthy)]
    share = max((_cost(sender) for _, sender, _ in slow), default=0.0)
    if not slow or share < LOSS_SHARE:
        return
    linked = {frozenset(link.ranks) for link in links_of(facts.ranks)}
    culprits = cut_off_ranks(facts, {frozenset(link.ranks) for link, _, _ in slow}, linked)
    rate = min(rate for _, _, rate in slow)
    yield propose(
        facts,
        Cause.SLOW_LINK,
        culprits,
        status=Status.SLOW,
        confidence=SEEN,
        summary=f"The link of {name_ranks(culprits)} carries {size(int(rate))} a second and is "
        f"busy {share:.0%} of the time; the job waits for it.",
        evidence=[
            Evidence(
                "sockets",
                sender.rank,
                f"had something to send to {sender.now.remote} {_busy(sender):.0%} of the time, "
                f"and got {size(int(rate))} a second through; round trips take "
                f"{sender.typical_rtt_ms or 0:.1f} ms, "
                f"{sender.now.least_rtt_ms or 0:.1f} ms at best; "
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
    return sent / busy if busy > SHORTEST_BUSY_S and sent else None


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
        _busy(sender) >= BUSY_LINK
        and held <= HELD_UP_LINK * busy
        and receiver.now.receive_queue <= UNREAD_SHARE * sender.grown("sent_bytes")
        and sender.active_s >= SHORTEST_WATCH_S
        and not _waits_for_receipts(sender)
    )


def _waits_for_receipts(sender: SocketEnd) -> bool:
    """True if little is on the way at a time: two segments, or the odd one out of a few.

    The receiver may take its time, 40 ms or more, to acknowledge those: no link is slow then.
    """
    rate, rtt_ms = _rate(sender), sender.typical_rtt_ms
    ends = {end.rpartition(":")[0] for end in (sender.now.local, sender.now.remote)}
    segment = LOOPBACK_SEGMENT_BYTES if len(ends) == 1 else SEGMENT_BYTES
    return (
        rate is not None
        and rtt_ms is not None
        and rate * rtt_ms / 1e3 < ACKNOWLEDGED_LATE * segment
    )
