"""Causes and words of the ways in which ranks call one operation differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.verdict import Cause

CAUSES: Final[Mapping[Difference, Cause]] = {
    Difference.SIZE: Cause.SIZE_MISMATCH,
    Difference.DTYPE: Cause.DTYPE_MISMATCH,
    Difference.ROOT: Cause.ROOT_MISMATCH,
    Difference.REDUCE_OP: Cause.REDUCTION_MISMATCH,
    Difference.SPLITS: Cause.SPLIT_MISMATCH,
}
WORDS: Final[Mapping[Difference, str]] = {
    Difference.OPERATION: "another operation",
    Difference.CALL_SITE: "an operation from another line",
    Difference.SIZE: "tensors of another size",
    Difference.DTYPE: "tensors of another dtype",
    Difference.ROOT: "another root",
    Difference.REDUCE_OP: "another reduction",
    Difference.SPLITS: "splits that do not fit",
}
