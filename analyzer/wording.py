"""Ranks and lines of code as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hanglab.analyzer.verdict import Location

#: Behind a sentence on ranks that differ, without its full stop.
UNTOLD: Final = ", and nothing tells which of them is wrong"
#: Ends before the peers of a rank that has a round more to do than they.
MORE_INPUT: Final = "more input than"
#: Of a rank that has not come to what others wait in.
NEVER_ENTERED: Final = "never entered"
#: Of a rank that is away beside one that has called otherwise.
AWAY: Final = "has not come there, either"
#: How the place of a rank is told that has left a loop which its peers are in.
BEHIND_LOOP: Final = "behind the loop"
#: The same of a rank whose next operation met the wrong one of its peers.
BEHIND_PEERS: Final = "behind its peers' loop"
#: Of two whose messages would be one but for a tag or a group; by what follows at the end.
MISS: Final = " miss each other: "
MISS_BY: Final = ": by "
#: Of ranks that asked for groups of other members, or in another order.
CALLED_DIFFERENTLY: Final = "new_group was called differently"
#: Of a slow rank that does not compute meanwhile.
WAS_BLOCKED: Final = "was blocked"
#: Of a rank that receives from any source.
ANY_RANK: Final = ", which takes from any rank"
#: Of a rank whose send nobody waited for.
LET_GO: Final = "let the send go that"


@dataclass(frozen=True)
class Need:
    """Evidence that would settle what is open, of one rank where ``rank`` is given.

    ``one`` are its words with ``{}`` for the rank, ``many`` those with it for several.
    """

    one: str
    many: str = ""
    rank: int | None = None


def need_dump(rank: int) -> Need:
    return Need("{}'s dump", "the dumps of {}", rank)


def need_later_dump(rank: int) -> Need:
    return Need("a later dump of {}", "later dumps of {}", rank)


def need_whole_dump(rank: int) -> Need:
    return Need("a whole dump of {}", "whole dumps of {}", rank)


def need_stack(rank: int) -> Need:
    return Need("{}'s stack", "the stacks of {}", rank)


def break_off(ranks: Sequence[int]) -> str:
    """``the dump of rank 3 breaks off``, ``the dumps of ranks 3 and 5 break off``."""
    dumps, verb = ("dump", "breaks") if len(set(ranks)) == 1 else ("dumps", "break")
    return f"the {dumps} of {name_ranks(ranks)} {verb} off"


def name_needs(needs: Iterable[Need]) -> list[str]:
    """``rank 5's dump``, ``the dumps of ranks 3 and 7-9``: each kind of evidence once, in order."""
    kinds: dict[Need, list[int]] = {}
    for need in needs:
        ranks = kinds.setdefault(Need(need.one, need.many), [])
        if need.rank is not None:
            ranks.append(need.rank)
    return [
        (kind.one if len(set(ranks)) < 2 else kind.many).format(name_ranks(ranks))
        for kind, ranks in kinds.items()
    ]


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
