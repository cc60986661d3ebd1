"""Groups that their members know by different names, so that they wait in different ones."""

from __future__ import annotations

from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.call_wording import SOURCE, location, observation
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.group_names import NameConflict
from hanglab.analyzer.strengths import SEEN, TIED
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status
from hanglab.analyzer.wording import name_ranks


def group_name_findings(graph: WaitForGraph) -> list[Finding]:
    """Conflicts of names that operations wait for; what nobody uses holds nobody up."""
    findings = []
    for conflict in graph.name_conflicts:
        waiting = _waiting(graph, conflict)
        sides = {conflict.names[rank] for rank in {call.rank for call in waiting} | conflict.used}
        # Of equals, one that has yet to use its group may be on its way to another one.
        if waiting and (conflict.deviating or sides == set(conflict.names.values())):
            findings.append(_finding(graph, conflict, waiting))
    return findings


def _waiting(graph: WaitForGraph, conflict: NameConflict) -> list[Call]:
    """Unfinished operations in groups by those names, those of ranks that deviate first."""
    found = [
        call
        for rank in conflict.names
        for call in graph.unfinished.get(rank, ())
        if call.group.members == conflict.members and call.group.name in conflict.unsure
    ]
    return sorted(found, key=lambda call: call.rank not in conflict.deviating)


def _who(conflict: NameConflict) -> str:
    if conflict.deviating:
        return name_ranks(conflict.deviating)
    return f"some of {name_ranks(conflict.candidates)}"


def _finding(graph: WaitForGraph, conflict: NameConflict, waiting: list[Call]) -> Finding:
    cause = Cause.GROUP_CREATION
    culprits = list(conflict.deviating or conflict.candidates)
    mine = next((call for call in waiting if call.rank in culprits), waiting[0])
    sides: dict[tuple[str, ...], list[int]] = {}
    for rank, names in conflict.names.items():
        sides.setdefault(names, []).append(rank)
    words = ", ".join(
        f"{' and '.join(names)} on {name_ranks(ranks)}" for names, ranks in list(sides.items())[:4]
    )
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        collective=collective_ref(mine),
        location=location(mine) if mine.rank in culprits else None,
        confidence=SEEN if conflict.deviating else TIED,
        summary=f"Groups of {name_ranks(conflict.members)} bear names that differ ({words}): "
        f"{_who(conflict)} created more or fewer groups before, so they do not meet.",
        evidence=[
            *(
                Evidence(SOURCE, rank, f"names groups of those ranks {' and '.join(names)}")
                for rank, names in list(conflict.names.items())[:LISTED_ROWS]
            ),
            *(observation(call, "waits in") for call in waiting[:4]),
        ],
        advice=cause.advice,
    )
