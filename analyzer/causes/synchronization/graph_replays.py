"""Ranks that replayed a CUDA graph, and the communication in it, more or less often than others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.graph_replays import differing_replays
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import SHOWN, TIED
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.analyzer.wording import name_ranks


@detector
def graph_replays(facts: CaseFacts) -> Iterator[Proposal]:
    """Members of a group between whose equal calls differ the operations that replays launched."""
    found = differing_replays(facts) if facts.stuck else None
    if found is None:
        return
    _, counts = found
    (usual, most), *others = Counter(counts.values()).most_common()
    tied = bool(others) and most * 2 <= len(counts)
    if tied:
        # Nothing tells whether some left a replay out or others made one too many.
        usual = max(counts.values())
    culprits = list(counts) if tied else [rank for rank, n in counts.items() if n != usual]
    fewer = all(counts[rank] <= usual for rank in culprits)
    words = ", ".join(f"rank {rank} {count}" for rank, count in counts.items())
    yield propose(
        facts,
        Cause.SKIPPED_COLLECTIVE if fewer else Cause.COLLECTIVE_MISMATCH,
        culprits,
        confidence=TIED if tied else SHOWN,
        summary=f"{name_ranks(culprits).capitalize()} differ"
        f"{'' if len(culprits) > 1 else 's'} in how many operations replays of CUDA graphs "
        f"launched between the same calls ({words}); no buffer has an entry of them.",
        evidence=[
            Evidence("progress", rank, f"replays of CUDA graphs launched {counts[rank]} operations")
            for rank in culprits
        ],
        location=facts.ranks[culprits[0]].location(),
    )
