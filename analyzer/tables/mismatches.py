"""Differences among calls that belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from hanglab.analyzer.flight_recorder.columns import Arguments, Operation
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.matching.signatures import ARGUMENT_DIFFERENCES

Kind = tuple[Operation, Arguments]


def _op(op: str, _: Arguments) -> Hashable:
    return op


_ASPECTS = {Difference.OPERATION: _op, **ARGUMENT_DIFFERENCES}


def mismatch(kinds: Sequence[Kind]) -> tuple[Difference | None, list[bool]]:
    """The gravest difference between calls of one row, and which of them deviate.

    Those deviate that are not of the most frequent sort; all of them where no
    sort is the most frequent.  What a dump does not know differs from nothing.
    """
    if len(set(kinds)) == 1:
        return None, [False] * len(kinds)
    for difference, aspect in _ASPECTS.items():
        values = [aspect(operation.op, arguments) for operation, arguments in kinds]
        counts = Counter(value for value in values if value is not None)
        if len(counts) > 1:
            (usual, most), (_, second) = counts.most_common(2)
            if most == second:
                return difference, [value is not None for value in values]
            return difference, [value not in (usual, None) for value in values]
    return None, [False] * len(kinds)
