"""A fabric that stalls is said of NCCL alone, and only where all else is proved sound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from views import ended, job, raised, view, waiting

from hanglab.analyzer.causes.hardware.fabric_stalled import fabric_stalled, link_down
from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.host_records import Connection, ConnectionSample
from hanglab.recorder.case.records import Clock, GroupRecord
from tests.analyzer.matching.graph_rows import Row, columns

SIZE = 4
#: What several ranks on one GPU are told, so that nothing but TCP is left (docs/gpu.md).
SOCKETS = {"NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def stalled(op: str = "all_reduce", backend: str = "cuda:nccl", **socket: object) -> CaseFacts:
    """All ranks inside one matched operation; rank 2's connections are ``socket``."""
    views = []
    for rank in range(SIZE):
        v = waiting(rank)
        v.groups = [GroupRecord("0", "default_pg", list(range(SIZE)), backend)]
        odd = socket if rank == 2 else {}
        v.connections = [sockets(**odd)]
        assert v.process is not None
        v.process.environment = dict(SOCKETS)
        views.append(v)
    known = job(views)
    group = known.graph.groups[0]
    known.graph.stalled = [
        Wait(Call(rank, group, 7, op), WaitKind.STALLED, ()) for rank in range(SIZE)
    ]
    set_states(known, {})
    return known


def set_states(facts: CaseFacts, odd: dict[int, str]) -> None:
    """The devices of all ranks have started the operation, but for those of ``odd``."""
    for rank in range(SIZE):
        row = Row("all_reduce", 7, done=False, state=odd.get(rank, "started"))
        facts.dumps[rank] = columns(rank, [row], members={"0": range(SIZE)})


def sockets(**changed: object) -> ConnectionSample:
    one = Connection("10.0.0.1:1", "10.0.0.2:2", "ESTABLISHED", **changed)  # type: ignore[arg-type]
    return ConnectionSample(Clock(9, 9), [one], capture=True, source="sock_diag")


def test_nobody_is_accused_where_all_else_is_sound() -> None:
    (proposal,) = fabric_stalled(stalled())
    finding = proposal.finding
    assert (finding.cause, finding.status) == (Cause.FABRIC_STALLED, Status.HUNG)
    assert finding.culprits == [] and finding.victims == list(range(SIZE))
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


def by_infiniband(facts: CaseFacts) -> None:
    for v in facts.ranks.values():
        assert v.process is not None
        v.process.environment = {}


def by_nvlink(facts: CaseFacts) -> None:
    process = facts.ranks[1].process
    assert process is not None
    process.environment = {"NCCL_NET": "Socket"}


def untimed(facts: CaseFacts) -> None:
    set_states(facts, dict.fromkeys(range(SIZE), "scheduled"))


def not_begun(facts: CaseFacts) -> None:
    set_states(facts, {3: "scheduled"})


@pytest.mark.parametrize(
    "change",
    [frozen, gone, unseen, unasked, moving, by_infiniband, by_nvlink, untimed, not_begun],
)
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


COMPLETION = (
    "node1:2304:2340 [4] transport/net_ib.cc:1615 NCCL WARN NET/IB : Got completion from peer "
    "10.216.210.236<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fd00::22 "
    "remoteGidsfd00::1f hca mlx5_4\n"
)
REMOTE = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.21.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\nLast error:\n"
)


@pytest.mark.parametrize("reporters", [[1], [0, 2]])
@pytest.mark.parametrize("raises", [True, False])
def test_a_completion_with_an_error_is_the_fabric_s(reporters: list[int], raises: bool) -> None:
    views = []
    for rank in range(SIZE):
        v = waiting(rank)
        if rank in reporters:
            v.stderr = COMPLETION
        if raises:
            said = REMOTE + (COMPLETION if rank in reporters else "")
            raised(v, "torch.distributed.DistBackendError", said, at=1000 + rank)
        views.append(v)
    verdict = conclude(job(views, trigger="exit" if raises else "no_progress"))
    assert verdict.status is (Status.FAILED if raises else Status.HUNG)
    assert (verdict.cause, verdict.culprits) == (Cause.FABRIC_STALLED, [])
    assert {row.rank for row in verdict.evidence if "mlx5_4" in row.detail} == set(reporters)


@pytest.mark.parametrize("root", ["killed", "exception", "ended"])
def test_a_peer_that_went_is_why_the_fabric_gave_work_back(root: str) -> None:
    views = [raised(waiting(r), "DistBackendError", REMOTE + COMPLETION, at=2000) for r in range(3)]
    if root == "exception":
        last = raised(view(3), "ValueError", "bad label", at=1000)
    else:
        last = ended(view(3), **({"code": None, "signal": 9} if root == "killed" else {"code": 0}))
    verdict = conclude(job([*views, last], trigger="exit"))
    assert verdict.cause is not Cause.FABRIC_STALLED
    assert verdict.culprits == ([] if root == "ended" else [3])


def test_an_earlier_failure_s_flush_is_no_root() -> None:
    views = [waiting(r) for r in range(SIZE)]
    views[1].stderr = COMPLETION.replace("status=12", "status=5")
    assert conclude(job(views)).cause is not Cause.FABRIC_STALLED


WARNED = "node3:4242:4250 [1] NCCL WARN NET/IB : {0}Got async event : port {1}\n"


def by_other_ways(facts: CaseFacts) -> CaseFacts:
    """The ranks talk over InfiniBand, of which no socket tells."""
    by_infiniband(facts)
    return facts


@pytest.mark.parametrize("port", ["", "mlx5_4:1 "])
@pytest.mark.parametrize("reporters", [[1], [0, 3]])
def test_a_port_that_went_down_is_why_all_are_inside(port: str, reporters: list[int]) -> None:
    known = by_other_ways(stalled())
    for rank in reporters:
        known.ranks[rank].stderr = WARNED.format(port, "error")
    verdict = conclude(known)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.FABRIC_STALLED)
    assert verdict.culprits == []
    assert [one.rank for one in verdict.evidence if "port error" in one.detail] == reporters


def test_a_port_that_came_back_says_nothing() -> None:
    known = by_other_ways(stalled())
    other = WARNED.format("mlx5_5:1 ", "active")
    known.ranks[1].stderr = WARNED.format("", "error") + WARNED.format("", "active") + other
    assert conclude(known).cause is None


@pytest.mark.parametrize("change", [frozen, gone, not_begun])
def test_a_port_that_went_down_is_no_reason_of_another_s_absence(
    change: Callable[[CaseFacts], None],
) -> None:
    known = by_other_ways(stalled())
    known.ranks[1].stderr = WARNED.format("", "error")
    change(known)
    assert not list(link_down(known))
