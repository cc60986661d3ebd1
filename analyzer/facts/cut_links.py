"""Connections on which what is sent gets lost, and the ranks that this cuts off.

A process that does not read fills its own window: its peer then waits with a
probe timer and nothing to send again.  Only a network that loses what is sent
makes the kernel send the same segment again and again, each time later.
"""

from __future__ import annotations

from itertools import combinations

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.links import SocketEnd, links_of
from hanglab.analyzer.facts.thresholds import RETRANSMISSIONS


def _lost(end: SocketEnd) -> bool:
    now = end.now
    return (
        now.state == "ESTABLISHED"
        and now.retransmitting
        and now.backoff >= RETRANSMISSIONS
        and now.send_queue > 0
    )


def _at_work(facts: CaseFacts, rank: int) -> bool:
    """True if a rank lives and could have read: the fault is not its own."""
    view = facts.ranks[rank]
    return view.ended is None and view.state not in ("T", "t", "Z", "X")


def cut_off_ranks(
    facts: CaseFacts, cut: set[frozenset[int]], linked: set[frozenset[int]]
) -> list[int]:
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
    """True if a link between the side and the rest is sound, and so disproves the cut."""
    return any(pair & side and pair & (ranks - side) for pair in linked - cut)


def lossy_directions(facts: CaseFacts) -> list[tuple[SocketEnd, SocketEnd]]:
    """(sender, receiver) of all that is sent in vain to a rank that lives; [] of a moving job."""
    if not facts.stuck:
        return []
    return [
        (sender, receiver)
        for link in links_of(facts.ranks)
        for sender, receiver in link.directions
        if _lost(sender) and _at_work(facts, receiver.rank)
    ]
