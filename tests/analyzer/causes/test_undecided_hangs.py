"""What an inconclusive verdict says of a hang: who waits for whom, and what would decide."""

from __future__ import annotations

import pytest
from views import job, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Status
from hanglab.analyzer.wording import need_stack


def waiting_in_sends(targets: dict[int, int], *, stacks: bool = True) -> CaseFacts:
    """Each rank waits to send to another one; what would decide is the stack of each."""
    known = job([waiting(rank) if stacks else view(rank) for rank in targets])
    graph = known.graph
    group = graph.groups[0]
    for rank, peer in targets.items():
        call = Call(rank, group, None, "send", peer=peer)
        graph.waits.append(Wait(call, WaitKind.NOT_ENTERED, (peer,)))
    graph.needs = [need_stack(rank) for rank in targets]
    return known


@pytest.mark.parametrize(
    ("targets", "ring"),
    [({0: 1, 1: 2, 2: 0}, "0-2"), ({0: 3, 1: 3, 3: 2, 2: 4, 4: 3}, "2-4")],
)
def test_a_ring_of_which_nobody_is_named_is_told(targets: dict[int, int], ring: str) -> None:
    found = conclude(waiting_in_sends(targets))
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert found.summary.startswith(f"Ranks {ring} wait for each other in a ring, the first in ")


def test_waits_that_end_at_a_rank_are_no_ring() -> None:
    found = conclude(waiting_in_sends({0: 1, 1: 2}))
    assert found.status is Status.INCONCLUSIVE
    assert "in a ring" not in found.summary


@pytest.mark.parametrize("stacks", [True, False])
def test_a_stack_that_is_there_would_decide_nothing(stacks: bool) -> None:
    found = conclude(waiting_in_sends({0: 1, 1: 2, 2: 0}, stacks=stacks))
    assert any("stack" in one for one in found.inputs.would_decide) is not stacks
