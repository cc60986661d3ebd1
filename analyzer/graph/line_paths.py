"""Places of a program that threads of ranks came to, by the lines of their calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.matching.program_order import Token

#: What comes before the first call of a thread.
START = "start"


@dataclass(frozen=True)
class Path:
    """Places that a thread of a rank came to, each with the call that is its first there.

    Messages of one place that follow each other are one, as each rank has as many as it has peers.
    """

    rank: int
    tokens: list[Token]
    calls: list[IssuedCall | None]

    @property
    def is_whole(self) -> bool:
        return self.tokens[0] == START


def path_of(order: IssuedOrder, name: Callable[[IssuedCall], Token]) -> Path:
    """The path of a thread, in which ``name`` says at which place a call is."""
    tokens: list[Token] = [START] if order.whole else []
    calls: list[IssuedCall | None] = [None] if order.whole else []
    for one in order.issued:
        token = name(one)
        if not (one.message and tokens and tokens[-1] == token):
            tokens.append(token)
            calls.append(one)
    return Path(order.rank, tokens, calls)
