"""Ranks whose main thread waits for the lock of a file that another rank holds."""

from __future__ import annotations

from collections.abc import Iterable

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import Evidence
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import FileLockWait


def file_lock_waits(facts: CaseFacts) -> dict[int, FileLockWait]:
    """By rank; its own process waits, and not one below it."""
    waits = {}
    for rank, view in facts.ranks.items():
        for wait in view.read(files.FILE_LOCKS):
            if wait.pid == view.pid and wait.holder_rank != rank and view.ended is None:
                waits[rank] = wait
    return waits


def lock_evidence(waits: dict[int, FileLockWait], ranks: Iterable[int]) -> list[Evidence]:
    """A line for each of the ranks that waits for a lock."""
    return [
        Evidence(
            "file_locks",
            rank,
            f"waits for the lock ({waits[rank].kind}) of {waits[rank].file}, "
            f"which rank {waits[rank].holder_rank} (pid {waits[rank].holder}) holds",
        )
        for rank in ranks
    ]


def final_holder(waits: dict[int, FileLockWait], rank: int) -> int:
    """Rank at the end of a chain of locks; where the chain is a ring, one of the ring."""
    seen: set[int] = set()
    while rank in waits and rank not in seen:
        seen.add(rank)
        rank = waits[rank].holder_rank
    return rank
