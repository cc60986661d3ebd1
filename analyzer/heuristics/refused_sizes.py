"""gloo ends a process that is sent more than the operation it is in expects.

The process leaves no buffer behind.  What it was in is not known, only that it
was not what its peer was in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import collective_ref
from hanglab.analyzer.heuristics.proposal import Order, Proposal, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status

_REFUSED = re.compile(r"preamble\.length <= \S*nbytes\S* (\d+) vs (\d+)")


def refused_sizes(known: Known) -> Iterator[Proposal]:
    """``collective_mismatch`` of two ranks; in larger jobs the sender is not known."""
    refused = {
        rank: found
        for rank, view in known.ranks.items()
        if view.failed and not view.answered and (found := _REFUSED.search(view.stderr))
    }
    if not refused or len(known.ranks) != 2:
        return
    ranks = sorted(known.ranks)
    pending = next((known.blocked(r) for r in ranks if known.blocked(r) is not None), None)
    detail = ", ".join(
        f"rank {rank} was sent {found[1]} bytes where it expected {found[2]} at most"
        for rank, found in refused.items()
    )
    yield propose(
        known,
        Order.DIVERGENCE,
        Cause.COLLECTIVE_MISMATCH,
        ranks,
        status=Status.HUNG if known.stuck else Status.FAILED,
        confidence=0.5,
        summary=f"{name_ranks(ranks).capitalize()} were in different operations, and nothing "
        f"tells which of them was wrong: {detail}, and gloo ended it.",
        evidence=[
            Evidence("stderr", rank, f"gloo: preamble.length {found[1]} vs {found[2]}")
            for rank, found in refused.items()
        ],
        collective=collective_ref(pending) if pending is not None else None,
        victims=[],
    )
