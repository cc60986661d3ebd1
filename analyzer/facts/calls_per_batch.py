"""Calls that ranks made from one line for each batch that their loaders gave them."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.loops import delivered
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.signatures import call_site


def left_out_for_no_batch(facts: CaseFacts, rank: int, theirs: Call) -> bool:
    """True if a rank made a peer's call as often for each of its batches as the peer has.

    From the peer's line, which may call once for a batch or several times: it had fewer batches
    then, if it left the loop with fewer calls.  Not where a ring lost some.
    """
    batches, peers = (delivered(facts.ranks[one]) for one in (rank, theirs.rank))
    made, of_peer = (_times_called(facts, one, theirs) for one in (rank, theirs.rank))
    if not batches or not peers or not made or not of_peer:
        return False
    # The peer may be in the midst of those for its latest batch.
    each = -(-of_peer // peers)
    return made == each * batches and each * (peers - 1) < of_peer


def _times_called(facts: CaseFacts, rank: int, call: Call) -> int | None:
    """Calls of that operation on that group from that line; None where not all are known."""
    dump, site = facts.dumps.get(rank), call_site(call.stack)
    if dump is None or dump.entries is None or dump.partial or site is None:
        return None
    entries = dump.entries
    there = [number for number, stack in enumerate(entries.stacks) if call_site(stack) == site]
    rows = np.flatnonzero(entries.in_group(call.group.name) & np.isin(entries.stack, there))
    return sum(entries.operation_at(row).op == call.op for row in rows.tolist())
