"""Proposals: what a heuristic hands to the decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from types import FunctionType
from typing import Any

import msgspec

from hanglab.analyzer.catalogue import Observation, Stage
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.verdict import (
    Alternative,
    Cause,
    CollectiveRef,
    Effect,
    Evidence,
    Finding,
    Location,
    Status,
)
from hanglab.recorder.case.decoders import decoder_of


@dataclass
class Proposal:
    """A finding, and what the decision has to know besides."""

    finding: Finding
    #: Read from an end, an error or a device, not inferred from where ranks stand.
    failure_on_record: bool = False
    #: Ranks that could be meant as well; they become alternatives.
    alternatives: list[tuple[Cause, list[int], float]] = field(default_factory=list)

    @property
    def stage(self) -> Stage:
        """The stage at which it is decided: its cause's, unless what it tells of has one."""
        finding = self.finding
        if self.failure_on_record:
            return Stage.EXIT
        if finding.status is Status.CORRUPT:
            return Stage.CORRUPT
        if finding.status is Status.SLOW or finding.cause is None:
            return Stage.SLOW
        # Who names nobody comes after all that name somebody.
        return finding.cause.stage if finding.culprits else max(finding.cause.stage, Stage.STALLED)

    def fits(self, observed: Observation) -> bool:
        """False where the catalogue rules its cause or its status out."""
        cause = self.finding.cause
        return cause is None or cause.fits(observed, self.finding.status)

    def problem(self, ranks: Collection[int]) -> str:
        """Words for what makes it no finding about a job of these ranks; "" for a sound one."""
        # Whatever is converted below has to be known whole before two threads ask for it.
        for kind in (Finding, list[Alternative]):
            decoder_of(kind)
        try:
            finding = msgspec.convert(msgspec.to_builtins(self.finding), Finding)
            others = [Alternative(*one) for one in self.alternatives]
            msgspec.convert(msgspec.to_builtins(others), list[Alternative])
        except (TypeError, ValueError) as error:
            return str(error)
        if finding.cause is None or finding.category is not finding.cause.category:
            return "no cause of the catalogue, or not of its category"
        shares = [finding.confidence, *(one.confidence for one in others)]
        if finding.status not in _OF_FAULTS:
            return f"a fault of a job that is {finding.status.value}"
        if not all(0 <= share <= 1 for share in shares):
            return "a confidence that is none"
        if set(finding.culprits) & set(finding.victims):
            return "a rank that is culprit and victim"
        named = {*finding.culprits, *finding.victims, *(r for one in others for r in one.culprits)}
        named |= {one.rank for one in finding.evidence if one.rank is not None}
        named |= {finding.location.rank} if finding.location is not None else set()
        strange = sorted(named.difference(ranks))
        return f"of ranks that the job does not have: {strange[:8]}" if strange else ""


def as_cause(finding: Finding, cause: Cause, **changes: Any) -> Finding:
    """The finding by another cause, with its category, and its advice if there is no other one."""
    words = {"category": cause.category, "advice": cause.advice, **changes}
    return msgspec.structs.replace(finding, cause=cause, **words)


#: Statuses of a finding.
_OF_FAULTS = frozenset({Status.HUNG, Status.FAILED, Status.SLOW, Status.CORRUPT})

Heuristic = Callable[[CaseFacts], Iterable[Proposal]]
_DETECTORS: set[Heuristic] = set()


def detector(heuristic: Heuristic) -> Heuristic:
    """Marks a function below ``causes`` as a heuristic of hanglab's own."""
    _DETECTORS.add(heuristic)
    return heuristic


def detector_of(*causes: Cause) -> Callable[[Heuristic], Heuristic]:
    """Marks one that looks at a job only where the catalogue allows one of these causes."""

    def mark(heuristic: Heuristic) -> Heuristic:
        @wraps(heuristic)
        def where_allowed(facts: CaseFacts) -> Iterable[Proposal]:
            observed = facts.observed
            return heuristic(facts) if any(cause.fits(observed) for cause in causes) else ()

        return detector(where_allowed)

    return mark


def is_detector(value: object) -> bool:
    """True for a function that ``detector`` has marked."""
    return isinstance(value, FunctionType) and value in _DETECTORS


def propose(
    facts: CaseFacts,
    cause: Cause,
    culprits: Sequence[int],
    *,
    status: Status | None = None,
    confidence: float,
    summary: str,
    evidence: Sequence[Evidence] = (),
    location: Location | None = None,
    collective: CollectiveRef | None = None,
    victims: Sequence[int] | None = None,
    effect: Effect | None = None,
    failure_on_record: bool = False,
    alternatives: Sequence[tuple[Cause, list[int], float]] = (),
    advice: str | None = None,
) -> Proposal:
    """A proposal whose victims are, unless said otherwise, all other ranks.

    Its status is then that of a job which the cause slows down or has brought to a stop.
    """
    if status is None:
        stopped = Status.HUNG if facts.stuck else Status.FAILED
        status = Status.SLOW if cause.status is Status.SLOW else stopped
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
            advice=advice or cause.advice,
            effect=effect,
        ),
        failure_on_record=failure_on_record,
        alternatives=list(alternatives),
    )
