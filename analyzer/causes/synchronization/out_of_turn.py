"""Sizes that differ because a rank is at another call of its round than its peers."""

from __future__ import annotations

from hanglab.analyzer.facts.call_wording import name_call, observation, shapes
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.rounds_of_calls import call_out_of_turn, call_too_many
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.proposal import as_cause
from hanglab.analyzer.strengths import CONCLUDED, LIKELY_ALTERNATIVE, REMOTE_ALTERNATIVE
from hanglab.analyzer.verdict import Cause, Finding


def as_call_out_of_turn(facts: CaseFacts, finding: Finding) -> Finding:
    """A ``size_mismatch`` as ``collective_mismatch``, where peers pass that size to another call.

    Nothing is to be padded then: what the rank called before, or in what order, is wrong.
    """
    for divergence in facts.graph.divergences:
        if list(divergence.deviating or divergence.candidates) != finding.culprits:
            continue
        more = call_too_many(facts, divergence)
        if more is not None:
            return _as_call_too_many(finding, divergence, more)
        found = call_out_of_turn(facts, divergence)
        if found is None:
            continue
        mine, turn = found
        when = "next" if (turn.seq or 0) > divergence.seq else "in its last round"
        return as_cause(
            finding,
            Cause.COLLECTIVE_MISMATCH,
            confidence=min(finding.confidence, CONCLUDED),
            summary=_summary(mine, turn, tied=not divergence.deviating),
            evidence=[*finding.evidence, observation(turn, f"a peer called {when}")],
        )
    return finding


def _as_call_too_many(finding: Finding, divergence: Divergence, more: Call) -> Finding:
    return as_cause(
        finding,
        Cause.COLLECTIVE_MISMATCH,
        confidence=min(finding.confidence, CONCLUDED),
        summary=f"Rank {more.rank} made one call more than its peers: {name_call(more)} "
        f"({shapes(more)}); since then each of its calls meets the next one of theirs, up to "
        f"number {divergence.seq}.",
        evidence=[*finding.evidence, observation(more, "called, as none of its peers did,")],
    )


def _summary(mine: Call, turn: Call, *, tied: bool) -> str:
    called = f"{name_call(mine)} ({shapes(mine)})"
    if tied:
        return (
            f"Rank {mine.rank} called {called} as rank {turn.rank} called number {turn.seq}: one "
            "of the two left a call out, or has one too many, and nothing tells which."
        )
    return (
        f"Rank {mine.rank} is at another call of its round than its peers: it called {called} as "
        f"they called number {turn.seq}."
    )


def alternatives(before: Cause, now: Finding) -> list[tuple[Cause, list[int], float]]:
    """Causes that a finding may have besides, where it was a size that differs ``before``."""
    if before is not Cause.SIZE_MISMATCH or now.cause is before:
        return []
    return [
        (Cause.SKIPPED_COLLECTIVE, now.culprits, LIKELY_ALTERNATIVE),
        (Cause.SIZE_MISMATCH, now.culprits, REMOTE_ALTERNATIVE),
    ]
