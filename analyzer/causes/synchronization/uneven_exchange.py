"""Two ranks that alone have not ended an all_to_all: their parts for each other do not fit.

Buffers before format 2.11 hold no split lists.  Each pair of members exchanges parts of its own,
so that all others end theirs.
"""

from __future__ import annotations

from hanglab.analyzer.facts.call_wording import line_of, name_call, observation
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.strengths import TIED
from hanglab.analyzer.verdict import Cause, Finding, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.case.operations import op_of


def uneven_exchange_findings(graph: WaitForGraph) -> list[Finding]:
    """One finding for the pair; [] unless there is one such, and no dump lacks.

    A rank that left the order of calls has its next ones meet others of its peers.
    """
    stuck: dict[tuple[int, int], list[Call]] = {}
    for wait in graph.waits:
        call = wait.call
        if call.seq is not None and not wait.on and op_of(call.op).splits:
            stuck.setdefault((id(call.group), call.seq), []).append(call)
    pairs = [calls for calls in stuck.values() if len(calls) == 2]
    if len(pairs) != 1 or graph.divergences or graph.departures:
        return []
    (calls,) = pairs
    first, _ = calls
    if len({line_of(call) for call in calls} - {""}) > 1:
        return []  # One of them makes another call of the program.
    members, known = first.group.members, set(graph.ranks).difference(graph.progressing)
    if len(members) < 3 or not known.issuperset(members):
        return []
    cause, culprits = Cause.SPLIT_MISMATCH, sorted(call.rank for call in calls)
    return [
        Finding(
            status=Status.HUNG,
            category=cause.category,
            cause=cause,
            culprits=culprits,
            victims=all_victims(graph, culprits),
            collective=collective_ref(first),
            location=None,
            confidence=TIED,
            summary=(
                f"{name_ranks(culprits).capitalize()} alone have not ended {name_call(first)}: "
                "what one of them sends is not what the other expects, or does not come through."
            ),
            evidence=[observation(call, "waits in") for call in calls],
            advice=cause.advice,
        )
    ]
