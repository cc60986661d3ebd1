"""A fabric that stalls is said of NCCL alone, and only where all else is proved sound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from views import ended, job, view, waiting

from hanglab.analyzer.causes.hardware.fabric_stalled import fabric_stalled
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.records import Clock, GroupRecord

SIZE = 4


def stalled(op: str = "all_reduce", backend: str = "cuda:nccl", **socket: object) -> CaseFacts:
    """All ranks inside one matched operation; rank 2's connections are ``socket``."""
    views = []
    for rank in range(SIZE):
        v = waiting(rank)
        v.groups = [GroupRecord("0", "default_pg", list(range(SIZE)), backend)]
        odd = socket if rank == 2 else {}
        v.connections = [sockets(**odd)]
        views.append(v)
    known = job(views)
    group = known.graph.groups[0]
    known.graph.stalled = [
        Wait(Call(rank, group, 7, op), WaitKind.STALLED, ()) for rank in range(SIZE)
    ]
    return known


def sockets(**changed: object) -> ConnectionSample:
    one = Connection("10.0.0.1:1", "10.0.0.2:2", "ESTABLISHED", **changed)  # type: ignore[arg-type]
    return ConnectionSample(Clock(9, 9), [one], capture=True, source="sock_diag")


def test_all_ranks_are_named_where_all_else_is_sound() -> None:
    (proposal,) = fabric_stalled(stalled())
    finding = proposal.finding
    assert (finding.cause, finding.status) == (Cause.FABRIC_STALLED, Status.HUNG)
    assert finding.culprits == list(range(SIZE)) and finding.victims == []
    assert finding.collective is not None and finding.collective.op == "all_reduce"


def frozen(facts: CaseFacts) -> None:
    facts.ranks[2] = view(2, state="T")


def gone(facts: CaseFacts) -> None:
    ended(facts.ranks[2], signal=9)


def unseen(facts: CaseFacts) -> None:
    facts.ranks[2].connections = []


def unasked(facts: CaseFacts) -> None:
    facts.ranks[2].connections = [ConnectionSample(Clock(9, 9), [], capture=True, source="proc")]


def moving(facts: CaseFacts) -> None:
    assert facts.job is not None
    facts.job.trigger = None


@pytest.mark.parametrize("change", [frozen, gone, unseen, unasked, moving])
def test_one_doubt_is_enough_to_say_nothing(change: Callable[[CaseFacts], None]) -> None:
    known = stalled()
    change(known)
    assert list(fabric_stalled(known)) == []


@pytest.mark.parametrize(
    "facts",
    [
        stalled(op="broadcast"),
        stalled(backend="gloo"),
        stalled(backend="cpu:gloo"),
        stalled(send_queue=4096),
        stalled(retransmitting=True),
    ],
    ids=["roots may differ", "gloo", "cpu", "unacknowledged", "lost"],
)
def test_what_has_another_explanation_is_not_the_fabric(facts: CaseFacts) -> None:
    assert list(fabric_stalled(facts)) == []
