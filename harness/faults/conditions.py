"""Conditions of a fault: what the progress files of the ranks must say before it strikes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ProgressSeen:
    """A rank's progress, as far as conditions ask for it.

    ``step`` is the number of the step that the rank is in, counted from 0, or
    -1 before its first; ``operations`` is how many calls entered a process group.
    """

    step: int
    operations: int


class Condition(Protocol):
    """Holds, once true, for the rest of the job."""

    @property
    def rank(self) -> int: ...

    def holds(self, seen: Mapping[int, ProgressSeen], elapsed_s: float) -> bool:
        """``elapsed_s`` is the time since every rank had registered."""
        ...

    def describe(self) -> str: ...


@dataclass(frozen=True)
class Steps:
    """Rank ``rank`` has reached step ``at_least``, counted from 0 as ``job.steps`` does."""

    rank: int
    at_least: int

    def holds(self, seen: Mapping[int, ProgressSeen], elapsed_s: float) -> bool:
        return self.rank in seen and seen[self.rank].step >= self.at_least

    def describe(self) -> str:
        return f"rank {self.rank} reaches step {self.at_least}"


@dataclass(frozen=True)
class Operations:
    """Rank ``rank`` has called into its process groups ``at_least`` times."""

    rank: int
    at_least: int

    def holds(self, seen: Mapping[int, ProgressSeen], elapsed_s: float) -> bool:
        return self.rank in seen and seen[self.rank].operations >= self.at_least

    def describe(self) -> str:
        return f"rank {self.rank} has made {self.at_least} calls into process groups"


@dataclass(frozen=True)
class Elapsed:
    """``seconds`` have passed since every rank had registered."""

    rank: int
    seconds: float

    def holds(self, seen: Mapping[int, ProgressSeen], elapsed_s: float) -> bool:
        return elapsed_s >= self.seconds

    def describe(self) -> str:
        return f"{self.seconds:g} s after the ranks have started"


@dataclass(frozen=True)
class FromTheStart:
    """Always: the fault is there before the ranks are."""

    rank: int

    def holds(self, seen: Mapping[int, ProgressSeen], elapsed_s: float) -> bool:
        return True

    def describe(self) -> str:
        return "the job starts"
