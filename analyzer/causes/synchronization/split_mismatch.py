"""Split lists of all_to_all that do not agree pair by pair.

What rank i sends to rank j must be as much as j expects from i.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.split_lists import Disagreement, first_disagreement
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import SHOWN, TIED
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Status
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case.records import StackFrame


@detector
def split_lists(facts: CaseFacts) -> Iterator[Proposal]:
    """``split_mismatch`` at the first all_to_all that did not finish everywhere, and ``corrupt``
    at the first that did all the same."""
    found = first_disagreement(facts)
    if found is not None:
        yield _proposal(facts, found)
    found = first_disagreement(facts, finished=True)
    if found is not None:
        yield _proposal(facts, found, Status.CORRUPT)


def _proposal(facts: CaseFacts, found: Disagreement, status: Status | None = None) -> Proposal:
    calls, members, suspects = found.calls, found.members, found.suspects
    first = facts.ranks[suspects[0]]
    words = "; ".join(
        f"rank {a} sends {calls[a].sends[members.index(b)]} to rank {b}, which expects "
        f"{calls[b].receives[members.index(a)]}"
        for a, b in found.pairs[:4]
    )
    return propose(
        facts,
        Cause.SPLIT_MISMATCH,
        suspects,
        status=status,
        confidence=SHOWN if len(suspects) == 1 else TIED,
        summary=f"The split lists of all_to_all number {found.seq} do not agree: {words}.",
        evidence=[
            Evidence(
                "boundary",
                r,
                f"sends {list(calls[r].sends)}, receives {list(calls[r].receives)}"
                + name_line(facts.ranks[r].location(_frame(calls[r].line))),
            )
            for r in sorted(calls)
        ],
        location=first.location(_frame(calls[suspects[0]].line)),
        collective=CollectiveRef(
            group=facts.dumps[next(iter(calls))].descriptions.get(found.group) or found.group,
            group_id=found.group,
            ranks=list(members),
            seq=found.seq,
            op="all_to_all",
        ),
    )


def _frame(line: Frame | None) -> StackFrame | None:
    return StackFrame(line.function, line.file, line.line) if line is not None else None
