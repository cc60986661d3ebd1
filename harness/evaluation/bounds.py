"""Bounds that an evaluation must keep to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from hanglab.harness.evaluation.measures import Rate


class Bounded(Protocol):
    """Measures of Cases, or of a suite's scripts."""

    @property
    def recall(self) -> Rate: ...
    @property
    def precision(self) -> Rate: ...
    @property
    def innocent(self) -> Rate: ...
    @property
    def inconclusive(self) -> Rate: ...


@dataclass(frozen=True)
class Bounds:
    """Shares, 0 to 1; None where anything will do."""

    min_recall: float | None = None
    min_precision: float | None = None
    max_innocent: float | None = None
    max_inconclusive: float | None = None

    def crossed(self, measures: Bounded) -> list[str]:
        """A sentence for each bound that is crossed, also where nothing was there to measure."""
        return [
            *_below("recall", measures.recall, self.min_recall),
            *_below("precision", measures.precision, self.min_precision),
            *_above(
                "share of Cases with an innocent accused", measures.innocent, self.max_innocent
            ),
            *_above("inconclusive share", measures.inconclusive, self.max_inconclusive),
        ]


def _below(what: str, measured: Rate, bound: float | None) -> Iterator[str]:
    if bound is None:
        return
    if measured.share is None:
        yield f"the {what} should be at least {bound:g}, and there is nothing to measure it on"
    elif measured.share < bound:
        yield f"the {what} is {_tell(measured)}, and should be at least {bound:g}"


def _above(what: str, measured: Rate, bound: float | None) -> Iterator[str]:
    if bound is None:
        return
    if measured.share is None:
        yield f"the {what} should be at most {bound:g}, and there is nothing to measure it on"
    elif measured.share > bound:
        yield f"the {what} is {_tell(measured)}, and should be at most {bound:g}"


def _tell(measured: Rate) -> str:
    return f"{measured.share:.4g} ({measured.count} of {measured.of})"
