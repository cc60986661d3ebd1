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
from hanglab.analyzer.matching.signatures import OPERATION, alike
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
    """True if two called alike since, or the one operation where the other has that other one."""
    bases = [sequences.of(rank) for rank in (one, other)]
    until = min(base + len(codes) for base, codes in bases)
    pairs = [
        (
            sequences.signature(sequences.code(one, at)),
            sequences.signature(sequences.code(other, at)),
        )
        for at in range(seq, until)
    ]
    if len(pairs) < 2 or any(None in pair for pair in pairs):
        return False
    met, *later = [
        (mine[OPERATION], theirs[OPERATION]) for mine, theirs in pairs if mine and theirs
    ]
    return all(names == met or alike(*pair) for names, pair in zip(later, pairs[1:], strict=True))


def are_one_operation(calls: Collection[Call]) -> bool:
    """True if the calls are of one operation of the library, under two names of torch's."""
    return len({op_of(call.op).program_name for call in calls}) == 1
