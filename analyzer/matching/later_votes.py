"""Votes of members whose call under a number is lost, by the calls that they made after it.

Who has left an operation out, or has one too many, is shifted against its peers from there on.  A
member whose ring holds later numbers alone tells by these which of the sides it went along with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hanglab.analyzer.matching.missing_votes import MissingVotes
from hanglab.analyzer.matching.sequences import Sequences, Signature


def later_votes(
    sequences: Sequences, seq: int, sides: Sequence[Sequence[int]], missing_votes: MissingVotes
) -> dict[int, int]:
    """Of members without a vote under ``seq`` the side, by its place, that they went along with."""
    found = {}
    for rank in missing_votes.unknown_calls:
        side = _side_of(sequences, rank, seq, sides)
        if side is not None:
            found[rank] = side
    return found


def _side_of(
    sequences: Sequences, rank: int, seq: int, sides: Sequence[Sequence[int]]
) -> int | None:
    base, codes = sequences.of(rank)
    places: set[int | None] = set()
    for number in range(max(base, seq + 1), base + len(codes)):
        calls = [_call_of(sequences, members, number) for members in sides]
        mine = sequences.signature(sequences.code(rank, number))
        if mine is None or any(_may_be_alike(*two) for two in combinations(calls, 2)):
            continue
        same = [place for place, call in enumerate(calls) if _may_be_alike(mine, call)]
        places.add(same[0] if len(same) == 1 else None)
    return places.pop() if len(places) == 1 else None


def _may_be_alike(one: Signature | None, other: Signature | None) -> bool:
    """True if two calls agree in all that is known of both: a dump may have no lines."""
    if one is None or other is None:
        return True
    return all(a == b or not (a and b) for a, b in zip(one, other, strict=True))


def _call_of(sequences: Sequences, members: Sequence[int], number: int) -> Signature | None:
    """The call of a side's members under a later number, where those agree that are known."""
    signatures = {sequences.signature(sequences.code(rank, number)) for rank in members} - {None}
    return signatures.pop() if len(signatures) == 1 else None
