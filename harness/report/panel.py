"""The console that results are printed on, and ranks in its tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

#: Width where the output is no terminal, so that tables in logs keep their columns.
PLAIN_WIDTH = 150


def make_console(*, errors: bool = False) -> Console:
    console = Console(stderr=errors, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=errors, highlight=False, width=PLAIN_WIDTH)
    return console


def rank_list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) if ranks else "-"
