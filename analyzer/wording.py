"""Ranks and lines of code as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hanglab.analyzer.verdict import Location

#: Behind a sentence on ranks that differ, without its full stop.
UNTOLD: Final = ", and nothing tells which of them is wrong"


def name_ranks(ranks: Sequence[int]) -> str:
    """``rank 1``, ``ranks 1 and 3``, ``ranks 0-5``: ranks as people read them."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "no rank"
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    runs: list[tuple[int, int]] = []
    for rank in ordered:
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    parts: list[str] = []
    for first, last in runs:
        if last - first >= 2:
            parts.append(f"{first}-{last}")
        else:
            parts += [str(rank) for rank in range(first, last + 1)]
    if len(parts) == 1:
        return f"ranks {parts[0]}"
    return f"ranks {', '.join(parts[:-1])} and {parts[-1]}"


def name_line(location: Location | None) -> str:
    """`` at train.py:18 (train_step)``, or nothing."""
    if location is None:
        return ""
    base = location.file.rsplit("/", 1)[-1]
    return f" at {base}:{location.line} ({location.function})"
