"""Ranks that wait for what a peer has, a lock or a key, while that one waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.absent_ranks import absent_ranks
from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.host_waits import HostWait, final_holder, host_waits, wait_evidence
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import SHOWN
from hanglab.analyzer.verdict import Cause, Status
from hanglab.analyzer.wording import name_line, name_ranks


@detector
def host_wait(facts: CaseFacts) -> Iterator[Proposal]:
    """``python_deadlock`` of a rank that keeps what its peers want and waits for them.

    What a rank does that waits for nobody is told of it as of any other rank.  Where nothing
    proves who had to act first, as of two ends of a socket, nobody is accused.
    """
    if not facts.stuck:
        return
    waits = host_waits(facts)
    held: dict[int, list[int]] = {}
    for rank in waits:
        holder = final_holder(waits, rank)
        held.setdefault(min(_ring(waits, holder), default=holder), []).append(rank)
    outside = set(absent_ranks(facts))
    for holder, waiters in held.items():
        if holder in waits:
            ring = _ring(waits, holder)
            # Whose turn has passed is to blame, whoever in turn keeps it waiting since.
            blamed = sorted({waits[rank].on[0] for rank in ring if waits[rank].left_out})
            if len(ring) > 1 and all(waits[rank].proved for rank in ring):
                words = "each waits for what another has"
                yield _proposal(facts, waits, ring, waiters, words)
            elif blamed:
                waiters = sorted(set(waiters) - set(blamed), key=lambda r: not waits[r].left_out)
                itself = ring == blamed
                words = "it waits for it itself" if itself else "it waits for its peers meanwhile"
                yield _proposal(facts, waits, blamed, waiters or blamed, words)
        elif holder in facts.ranks and holder not in outside:
            call = next((w.call for w in facts.graph.waits if w.call.rank == holder), None)
            if call is not None and all(waits[rank].proved for rank in waiters):
                words = f"it waits for its peers in {call.op} meanwhile"
                yield _proposal(facts, waits, [holder], waiters, words)


def _ring(waits: dict[int, HostWait], rank: int) -> list[int]:
    """Ranks that wait for each other; empty where somebody may be freed by another."""
    ring: list[int] = []
    if rank not in waits:
        return ring
    while rank not in ring:
        ring.append(rank)
        if rank not in waits or len(waits[rank].on) != 1:
            return []
        (rank,) = waits[rank].on
    return sorted(ring)


def _proposal(
    facts: CaseFacts,
    waits: dict[int, HostWait],
    culprits: list[int],
    waiters: list[int],
    words: str,
) -> Proposal:
    location = facts.ranks[culprits[0]].location()
    call = next((w.call for w in facts.graph.waits if w.call.rank in culprits), None)
    wait = waits[waiters[0]]
    return propose(
        facts,
        Cause.PYTHON_DEADLOCK,
        culprits,
        status=Status.HUNG,
        confidence=SHOWN,
        summary=f"{name_ranks(culprits).capitalize()} "
        f"{'keeps' if len(culprits) == 1 else 'keep'} {name_ranks(waiters)} "
        f"waiting{name_line(location)}: {words}, and rank {wait.rank} {wait.words}.",
        evidence=wait_evidence(waits, waiters[:LISTED_ROWS]),
        location=location,
        collective=collective_ref(call) if call is not None else None,
    )
