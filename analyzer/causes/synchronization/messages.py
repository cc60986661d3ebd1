"""Sends and receives that meet with tensors of different sizes or dtypes."""

from __future__ import annotations

from hanglab.analyzer.facts.call_wording import location, name_call, observation, shapes
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims
from hanglab.analyzer.graph.wait_for_graph import MismatchedMessage, WaitForGraph
from hanglab.analyzer.matching.calls import Difference
from hanglab.analyzer.strengths import INFERRED, TIED
from hanglab.analyzer.verdict import Cause, Finding, Status
from hanglab.analyzer.wording import UNTOLD

_CAUSES = {Difference.SIZE: Cause.SIZE_MISMATCH, Difference.DTYPE: Cause.DTYPE_MISMATCH}


def message_findings(graph: WaitForGraph) -> list[Finding]:
    """Messages that an end has not finished."""
    return [_finding(graph, one) for one in graph.mismatched_messages if not one.finished]


def silent_message_findings(graph: WaitForGraph) -> list[Finding]:
    """Messages that both ends finished: what arrived is undefined."""
    return [_finding(graph, one) for one in graph.mismatched_messages if one.finished]


def _finding(graph: WaitForGraph, message: MismatchedMessage) -> Finding:
    cause = _CAUSES[message.difference]
    calls = (message.sent, message.taken)
    culprits = sorted(call.rank for call in calls if message.deviating in (None, call.rank))
    mine = next(call for call in calls if call.rank in culprits)
    sent, taken = message.sent, message.taken
    summary = (
        f"Rank {sent.rank}'s {name_call(sent)} ({shapes(sent)}) meets rank {taken.rank}'s "
        f"{name_call(taken)} ({shapes(taken)})"
    )
    if message.deviating is not None:
        summary += f"; all other messages of the two are unlike that of rank {message.deviating}"
    else:
        summary += UNTOLD
    victims = [call.rank for call in calls if call.rank not in culprits]
    return Finding(
        status=Status.CORRUPT if message.finished else Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=victims if message.finished else all_victims(graph, culprits),
        collective=collective_ref(mine),
        location=location(mine),
        confidence=TIED if message.deviating is None else INFERRED,
        summary=f"{summary}. Nothing waits for it, and what arrived is undefined."
        if message.finished
        else f"{summary}.",
        evidence=[observation(call) for call in calls],
        advice=cause.advice,
    )
