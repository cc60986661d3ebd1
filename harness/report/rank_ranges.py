"""Many ranks in few characters."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(ranks: Iterable[int]) -> str:
    """``0, 2-63``; "" of none."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(
        str(first)
        if first == last
        else f"{first}-{last}"
        if last > first + 1
        else f"{first}, {last}"
        for first, last in runs
    )


def named(ranks: Iterable[int]) -> str:
    """``rank 3`` or ``ranks 0, 2-63``."""
    chosen = set(ranks)
    return f"{'rank' if len(chosen) == 1 else 'ranks'} {ranges(chosen)}" if chosen else "no rank"
