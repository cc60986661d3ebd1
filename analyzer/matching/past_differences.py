"""Operations that differed in name, went on as one, and explain nothing of what came since.

NCCL runs ``all_gather`` and ``_all_gather_base`` as one kernel, so that ranks may call the one and
the other in every round.  Of two that are not one the results are undefined; but a rank that had a
call too many, or too few, there is out of step with its peers from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.sequences import Sequences
from hanglab.analyzer.matching.signatures import alike
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.matching.thresholds import COMPARED_HISTORIES
from hanglab.recorder.case.operations import op_of


def is_past(sequences: Sequences, seq: int, sides: Sequence[Collection[int]]) -> bool:
    """True if all have ended the operation with that number, and more, and are in step since.

    ``sides`` are the ranks that called alike there.  Where one of them alone waits now, or alone
    has not come, it may be out of step after all.
    """
    ranks = {rank for side in sides for rank in side}
    known = {rank: one for rank, one in sequences.group.progress.items() if rank in ranks}
    if known.keys() != ranks or any(one.entered is None for one in known.values()):
        return False
    held = min((min(one.unfinished) for one in known.values() if one.unfinished), default=None)
    if held is not None:
        if held <= seq + 1:
            return False
        waiting = {rank for rank, one in known.items() if one.has_entered(held)}
        if any(set(side) in (waiting, ranks - waiting) for side in sides):
            return False
    histories = [ranks & one.windows.keys() for one in sequences.histories]
    telling = [min(one) for one in histories if one]
    return len(telling) <= COMPARED_HISTORIES and all(
        _are_in_step(sequences, seq, *pair) for pair in combinations(telling, 2)
    )


def _are_in_step(sequences: Sequences, seq: int, one: int, other: int) -> bool:
    """True if two called alike since, but for the very two calls that met there."""
    met = sequences.code(one, seq), sequences.code(other, seq)
    bases = [sequences.of(rank) for rank in (one, other)]
    until = min(base + len(codes) for base, codes in bases)
    pairs = [(sequences.code(one, at), sequences.code(other, at)) for at in range(seq + 1, until)]
    return bool(pairs) and all(
        GAP not in pair and (pair == met or alike(*map(sequences.signature, pair)))
        for pair in pairs
    )


def are_one_operation(calls: Collection[Call]) -> bool:
    """True if the calls are of one operation of the library, under two names of torch's."""
    return len({op_of(call.op).program_name for call in calls}) == 1
