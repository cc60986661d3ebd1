"""The rank that alone went on as nobody had done before to what it is in, if nothing else tells."""

from __future__ import annotations

from hanglab.analyzer.facts.call_wording import location, name_step, observation
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.strengths import PLAUSIBLE
from hanglab.analyzer.verdict import Cause, Finding, Status


def lone_step_findings(graph: WaitForGraph) -> list[Finding]:
    """One finding where the only rank that waits came so to what it waits in; else none.

    All others have come to what they had done before, and ended it.
    """
    if not graph.waits or graph.progressing or graph.missing or graph.lone_steps is None:
        return []
    if len({wait.call.rank for wait in graph.waits}) > 1:
        return []  # Others wait elsewhere, and it for them maybe.
    step = graph.lone_steps.taken_by_one_of(graph.expected, uneven=True)
    if step is None or step.call is None or step.call.completed:
        return []
    cause = Cause.P2P_UNMATCHED if step.call.seq is None else Cause.COLLECTIVE_MISMATCH
    return [
        Finding(
            status=Status.HUNG,
            category=cause.category,
            cause=cause,
            culprits=[step.rank],
            victims=all_victims(graph, [step.rank]),
            collective=collective_ref(step.call),
            location=location(step.call),
            confidence=PLAUSIBLE,
            summary=f"{name_step(step)} All others did what they, or their peers, had done before.",
            evidence=[observation(step.call)],
            advice=cause.advice,
        )
    ]
