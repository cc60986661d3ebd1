"""Proposals: what a heuristic hands to the decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import FunctionType

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import (
    Cause,
    CollectiveRef,
    Effect,
    Evidence,
    Finding,
    Location,
    Status,
)


class Order(IntEnum):
    """The order in which causes are decided: the first that is proved wins."""

    EXIT = 1
    PROCESS = 2
    DIVERGENCE = 3
    CYCLE = 4
    OUTSIDE = 5
    STALLED = 6
    CORRUPT = 7
    SLOW = 8


@dataclass
class Proposal:
    """A finding, and where it stands in the order.

    ``excludes`` are ranks whose own failure this one explains although they
    are no culprits: a rank that raised because its peer was gone, say.
    """

    finding: Finding
    order: Order
    excludes: frozenset[int] = frozenset()
    #: Ranks that could be meant as well; they become alternatives.
    alternatives: list[tuple[Cause, list[int], float]] = field(default_factory=list)


Heuristic = Callable[[CaseFacts], Iterable[Proposal]]
_DETECTORS: set[Heuristic] = set()


def detector(heuristic: Heuristic) -> Heuristic:
    """Marks a function below ``causes`` as a heuristic of hanglab's own."""
    _DETECTORS.add(heuristic)
    return heuristic


def is_detector(value: object) -> bool:
    """True for a function that ``detector`` has marked."""
    return isinstance(value, FunctionType) and value in _DETECTORS


def propose(
    facts: CaseFacts,
    order: Order,
    cause: Cause,
    culprits: Sequence[int],
    *,
    status: Status,
    confidence: float,
    summary: str,
    evidence: Sequence[Evidence] = (),
    location: Location | None = None,
    collective: CollectiveRef | None = None,
    victims: Sequence[int] | None = None,
    effect: Effect | None = None,
    excludes: Iterable[int] = (),
    alternatives: Sequence[tuple[Cause, list[int], float]] = (),
) -> Proposal:
    """A proposal whose victims are, unless said otherwise, all other ranks."""
    if victims is None:
        victims = facts.others(*culprits)
    return Proposal(
        finding=Finding(
            status=status,
            category=cause.category,
            cause=cause,
            culprits=sorted(culprits),
            victims=sorted(victims),
            collective=collective,
            location=location,
            confidence=confidence,
            summary=summary,
            evidence=list(evidence),
            advice=cause.advice,
            effect=effect,
        ),
        order=order,
        excludes=frozenset(excludes),
        alternatives=list(alternatives),
    )
