"""``process_frozen``: ranks whose process, or whose child, is stopped."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import KERNEL_SAYS
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_line, name_ranks


def _stopped_children(view: RankView) -> list[int]:
    states: dict[int, set[str]] = {}
    for sample in view.processes:
        if sample.kind != "rank" and sample.capture:
            states.setdefault(sample.pid, set()).add(sample.state)
    return sorted(pid for pid, seen in states.items() if seen == {"T"})


def _stopped_by(view: RankView) -> str:
    if view.state == "T":
        return "state T"
    return f"its control group is frozen; state {view.state}, kernel: {view.wchan or 'unknown'}"


@detector
def stopped_processes(facts: CaseFacts) -> Iterator[Proposal]:
    """``process_frozen``: state T, or held by a freezer, of a rank or what it waits for."""
    frozen = [v for v in facts.ranks.values() if v.ended is None and v.is_stopped]
    details = [
        Evidence(
            "process_state",
            v.rank,
            f"process {v.pid} is stopped ({_stopped_by(v)})"
            + (name_line(v.location()) or ", no stack could be taken"),
        )
        for v in frozen
    ]
    ranks = [v.rank for v in frozen]
    for view in facts.ranks.values():
        # Nobody inside can say so: its recorder is frozen with it.
        container = facts.host_of(view.rank).container
        paused = container is not None and container.status == "paused"
        if paused and facts.stuck and view.ended is None and view.rank not in ranks:
            ranks.append(view.rank)
            detail = f"its node {view.host} is paused, says the container engine"
            details.append(Evidence("host", view.rank, detail))
    for view in facts.ranks.values():
        children = _stopped_children(view)
        if children and view.rank not in ranks and facts.in_no_operation(view.rank):
            ranks.append(view.rank)
            details.append(
                Evidence("process_state", view.rank, f"its child process {children[0]} is stopped")
            )
    if not ranks:
        return
    first = facts.ranks[min(ranks)]
    yield propose(
        facts,
        Cause.PROCESS_FROZEN,
        ranks,
        status=Status.HUNG,
        confidence=KERNEL_SAYS,
        summary=f"{name_ranks(ranks).capitalize()} "
        f"{'is' if len(ranks) == 1 else 'are'} stopped by a signal or a freezer; the other ranks "
        "wait for it.",
        evidence=details,
        location=first.location(),
        collective=collective_ref(call) if (call := facts.awaited(first.rank)) else None,
    )
