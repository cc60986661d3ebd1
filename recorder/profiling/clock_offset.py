"""Difference of another host's clock from ours, by the answers that it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ClockAnswer:
    """A host's wall clock, and the times of ours between which it said so; milliseconds."""

    before_ms: float
    after_ms: float
    theirs_ms: float


def offset_ms(answers: Sequence[ClockAnswer]) -> float:
    """The peer's wall clock minus ours; 0 where their answers allow that both are the same.

    An answer says no more than that the difference lies within its way there and back, which
    is long on a crowded machine.  Half the way as a guess would part hosts whose clocks agree;
    several answers together allow less than each (Cristian, "Probabilistic clock
    synchronization", 1989).
    """
    low = max(answer.theirs_ms - answer.after_ms for answer in answers)
    high = min(answer.theirs_ms - answer.before_ms for answer in answers)
    if low <= 0.0 <= high:
        return 0.0
    return (low + high) / 2
