"""The verdict that a mutant must get, as its operator knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

import msgspec

from hanglab.analyzer.verdict import Cause


class FaultEffect(str, Enum):
    """Effect of a fault on the job where it can be observed."""

    STOPS = "stops"  # it hangs or fails
    SLOWS = "slows"  # it ends well, and later


class Answer(msgspec.Struct, frozen=True):
    """A right answer: any of these causes, and exactly these culprits."""

    causes: list[Cause]
    culprits: list[int]


class ExpectedVerdict(msgspec.Struct, frozen=True):
    """Right answers, the best first; several where the fault can truly be told in several ways.

    ``also_named`` are ranks that an answer may name besides, as they take part in what is wrong
    (both ends of a message).
    """

    answers: list[Answer]
    effect: FaultEffect = FaultEffect.STOPS
    also_named: list[int] = []
    #: False where the culprit has gone or stands in code that is not the script's.
    has_line: bool = True

    @property
    def culprits(self) -> list[int]:
        """Culprits of the best answer."""
        return self.answers[0].culprits

    @property
    def causes(self) -> list[Cause]:
        return list(dict.fromkeys(cause for answer in self.answers for cause in answer.causes))

    @property
    def guilty(self) -> set[int]:
        """Ranks that may be named; all others are innocent."""
        named = {rank for answer in self.answers for rank in answer.culprits}
        return named | set(self.also_named)


def truth(
    causes: Iterable[Cause],
    culprits: Collection[int],
    *others: Answer,
    effect: FaultEffect = FaultEffect.STOPS,
    also_named: Collection[int] = (),
    has_line: bool = True,
) -> ExpectedVerdict:
    best = Answer(list(causes), sorted(culprits))
    return ExpectedVerdict([best, *others], effect, sorted(also_named), has_line)
