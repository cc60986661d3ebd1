"""Ranks that wait for the lock of a file, and the rank that holds it while it waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.absent_ranks import absent_ranks
from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.file_lock_waits import file_lock_waits, final_holder, lock_evidence
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.verdict import Cause, Status
from hanglab.analyzer.wording import name_line, name_ranks
from hanglab.recorder.case.records import FileLockWait


@detector
def file_lock(facts: CaseFacts) -> Iterator[Proposal]:
    """``python_deadlock`` of a rank that keeps a lock and waits for those who want it.

    What a holder does that waits for nobody is told of it as of any other rank.
    """
    if not facts.stuck:
        return
    waits = file_lock_waits(facts)
    held: dict[int, list[int]] = {}
    for rank in waits:
        held.setdefault(final_holder(waits, rank), []).append(rank)
    outside = set(absent_ranks(facts))
    for holder, waiters in held.items():
        if holder in waits:
            ring = [rank for rank in waiters if rank in _ring(waits, holder)]
            yield _proposal(facts, waits, ring, waiters, "each waits for a lock that another holds")
        elif holder in facts.ranks and holder not in outside:
            call = next((w.call for w in facts.graph.waits if w.call.rank == holder), None)
            if call is not None:
                words = f"it waits for its peers in {call.op} meanwhile"
                yield _proposal(facts, waits, [holder], waiters, words)


def _ring(waits: dict[int, FileLockWait], rank: int) -> set[int]:
    ring = {rank}
    while (rank := waits[rank].holder_rank) not in ring:
        ring.add(rank)
    return ring


def _proposal(
    facts: CaseFacts,
    waits: dict[int, FileLockWait],
    culprits: list[int],
    waiters: list[int],
    words: str,
) -> Proposal:
    location = facts.ranks[culprits[0]].location()
    file = waits[waiters[0]].file
    call = next((w.call for w in facts.graph.waits if w.call.rank in culprits), None)
    return propose(
        facts,
        Cause.PYTHON_DEADLOCK,
        culprits,
        status=Status.HUNG,
        confidence=0.95,
        summary=f"{name_ranks(culprits).capitalize()} "
        f"{'holds' if len(culprits) == 1 else 'hold'} the lock of {file}, for which "
        f"{name_ranks(waiters)} {'waits' if len(waiters) == 1 else 'wait'}"
        f"{name_line(location)}: {words}.",
        evidence=lock_evidence(waits, waiters[:LISTED_ROWS]),
        location=location,
        collective=collective_ref(call) if call is not None else None,
    )
