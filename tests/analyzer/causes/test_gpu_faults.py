"""GPUs: messages of the driver, counters of NVML, RAS, ranks in the driver, devices behind."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from views import AT, ended, job, raised, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.host_records import GpuSample, HostSample, RankLoad, SleepingThread
from hanglab.recorder.case.records import Clock, GroupRecord, StackFrame
from tests.analyzer.matching.graph_rows import Row, columns

SECOND = 1_000_000_000
CUDA = "/x/site-packages/torch/cuda/__init__.py"


def gpu(index: int, **fields: Any) -> GpuSample:
    place = f"00000000:{16 + index:02X}:00.0"
    known: dict[str, Any] = {"ranks": [index], "pci": place} | fields
    return GpuSample(index, f"GPU-{index}", "NVIDIA H100", **known)


def sampled(facts: CaseFacts, *samples: dict[str, Any], nccl: Any = None) -> CaseFacts:
    """The ranks on one host with these samples, a second apart."""
    facts.hosts[""] = HostView(
        "",
        [
            HostSample(at=Clock(n * SECOND, n * SECOND), **fields)
            for n, fields in enumerate(samples)
        ],
        nccl,
    )
    return facts


def hung() -> CaseFacts:
    return job([waiting(r) for r in range(4)])


FELL = "NVRM: Xid (PCI:0000:12:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        FELL,
        "NVRM: Xid (PCI:0000:12:00): 48, pid=77, name=python, DBE (double bit error)",
        "NVRM: Xid (PCI:0000:99:00): 74, pid=102, name=python, NVLink: fatal error detected",
        "NVRM: Xid (PCI:0000:12:00): 13, pid=102, name=python, Graphics Exception: ESR 0x50",
    ],
    ids=["bus", "ECC", "by its process", "channel stopped"],
)
def test_a_message_of_the_driver_names_the_rank(line: str) -> None:
    gpus = [gpu(index) for index in range(4)]
    verdict = conclude(sampled(hung(), {"gpus": gpus}, {"gpus": gpus, "kernel": [line]}))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.GPU_FAULT)
    assert verdict.culprits == [2] and "Xid" in verdict.summary


def test_a_message_on_an_unknown_gpu_accuses_nobody() -> None:
    verdict = conclude(sampled(hung(), {"kernel": [FELL]}))
    assert (verdict.cause, verdict.culprits) == (Cause.GPU_FAULT, [])


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:12:00): 45, pid=102, name=python, Ch 00000010",
        "NVRM: Xid (PCI:0000:12:00): 63, pid=1896, Row Remapper: New row marked for remapping",
        "python[102]: segfault at 0 ip 00007f",
    ],
)
def test_messages_that_follow_from_others_name_nobody(line: str) -> None:
    verdict = conclude(sampled(hung(), {"gpus": [gpu(2)], "kernel": [line]}))
    assert verdict.cause is not Cause.GPU_FAULT


def test_a_sound_job_is_healthy_whatever_the_driver_said() -> None:
    known = job([ended(view(r)) for r in range(3)], trigger=None)
    assert conclude(sampled(known, {"gpus": [gpu(2)], "kernel": [FELL]})).status is Status.HEALTHY


def test_the_first_of_two_messages_is_the_root() -> None:
    gpus = [gpu(index) for index in range(4)]
    later = FELL.replace(":12:", ":13:")
    samples = [{"gpus": gpus, "kernel": [FELL]}, {}, {}, {"kernel": [later]}]
    assert conclude(sampled(hung(), *samples)).culprits == [2]


def test_its_own_error_says_more_than_that_its_channel_was_stopped() -> None:
    message = "CUDA error: an illegal memory access was encountered"
    culprit = raised(view(2), "RuntimeError", message, user(40))
    stopped = FELL.replace("79, GPU has fallen off the bus", "31, pid=102, MMU Fault")
    known = job([culprit, *(waiting(r) for r in (0, 1, 3))], outside=[2], trigger="exit")
    verdict = conclude(sampled(known, {"gpus": [gpu(2)], "kernel": [stopped]}))
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [2])


@pytest.mark.parametrize("has_ended", [True, False])
def test_the_drivers_message_says_more_than_an_error_of_cuda(has_ended: bool) -> None:
    """Also of a process that has raised, and whose watchdog is about to end it."""
    culprit = raised(view(2), "RuntimeError", "CUDA error: unspecified launch failure", user(40))
    if not has_ended:
        culprit.exit = None
    broken = FELL.replace("79, GPU has fallen off the bus", "48, pid=102, name=python, DBE")
    known = job([culprit, *(view(r) for r in (0, 1, 3))], trigger="timeout_dump")
    verdict = conclude(sampled(known, {"gpus": [gpu(2)], "kernel": [broken]}))
    assert (verdict.cause, verdict.culprits) == (Cause.GPU_FAULT, [2])
    assert verdict.location is not None and verdict.location.line == 40


@pytest.mark.parametrize(("last", "fault"), [(3, True), (2, False)])
def test_memory_errors_that_were_counted_meanwhile(last: int, fault: bool) -> None:
    before = [gpu(index, ecc_errors=2) for index in range(4)]
    after = [gpu(index, ecc_errors=last if index == 1 else 2) for index in range(4)]
    verdict = conclude(sampled(hung(), {"gpus": before}, {"gpus": after}))
    assert (verdict.cause is Cause.GPU_FAULT and verdict.culprits == [1]) == fault


def ras(*errors: int) -> dict[str, Any]:
    """As NCCL 2.28 writes it; async_error is a ncclResult_t."""
    ranks = [
        {
            "rank": rank,
            "host": "10.0.0.1",
            "pid": 100 + rank,
            "cuda_dev": rank,
            "status": {"init_state": 0, "async_error": error, "abort_flag": False},
            "collective_counts": {"AllReduce": 12},
        }
        for rank, error in enumerate(errors)
    ]
    return {"communicators": [{"hash": "0x1", "size": 4, "ranks": ranks, "missing_ranks": []}]}


@pytest.mark.parametrize(
    ("answer", "culprits"),
    [
        (ras(0, 0, 0, 1), [3]),
        (ras(6, 6, 1, 6), [2]),
        (ras(7, 7, 7, 7), None),
        (ras(0, 0, 0, 0), None),
        ({"text": "NCCL version 2.26"}, None),
        ({"communicators": [None, {"ranks": [3, {"status": 4, "pid": "x"}]}]}, None),
        ({"communicators": 7}, None),
    ],
)
def test_cuda_errors_that_only_nccl_knows_of(answer: Any, culprits: list[int] | None) -> None:
    verdict = conclude(sampled(hung(), {}, nccl=answer))
    assert (verdict.cause is Cause.GPU_FAULT) == (culprits is not None)
    assert verdict.culprits == (culprits or [])


def test_a_cuda_error_beside_a_dump_that_torch_wrote_by_itself() -> None:
    """Before anything had stood still for long enough: the watchdog had seen the failure."""
    known = job([waiting(r) for r in range(4)], trigger="timeout_dump")
    verdict = conclude(sampled(known, {}, nccl=ras(0, 0, 1, 0)))
    assert (verdict.cause, verdict.culprits) == (Cause.GPU_FAULT, [2])


def test_a_job_is_not_called_healthy_where_torch_dumped_by_itself() -> None:
    verdict = conclude(sampled(job([waiting(r) for r in range(4)], trigger="timeout_dump"), {}))
    assert verdict.status is Status.INCONCLUSIVE


def kept(wchan: str, target: str = "", states: str = "DD", gpus: bool = True) -> CaseFacts:
    """Rank 1 of three sleeps in the kernel."""
    stuck = view(1, user(25), state="D", wchan=wchan)
    for sample, state in zip(stuck.processes, states, strict=True):
        sample.state = state
    facts = job([waiting(0), stuck, waiting(2)], outside=[1])
    thread = SleepingThread(101, "D", wchan, "ioctl" if target else "", target)
    load = RankLoad(1, 0, 101, "D", sleeping=[thread])
    return sampled(facts, {"ranks": [load], "gpus": [gpu(1)] if gpus else [], "capture": True})


@pytest.mark.parametrize(
    ("wchan", "target"),
    [
        ("os_acquire_rwlock_write", ""),
        ("uvm_page_tree_get_ptes_async", ""),
        ("", "/dev/nvidiactl"),
        ("down_read", "/dev/nvidia0"),
        ("amdgpu_cs_ioctl", ""),
    ],
)
def test_a_rank_that_the_gpu_s_driver_keeps(wchan: str, target: str) -> None:
    verdict = conclude(kept(wchan, target))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.HUNG, Cause.GPU_FAULT, [1])
    assert verdict.location is not None and verdict.location.line == 25
    assert all(finding.cause is not Cause.IO_BLOCKED for finding in verdict.findings)


@pytest.mark.parametrize(
    ("wchan", "cause", "least"),
    [("nfs_wait_bit_killable", Cause.IO_BLOCKED, 0.9), ("", Cause.IO_BLOCKED, 0.5)],
)
def test_storage_is_said_of_storage_and_weaker_where_nobody_tells(
    wchan: str, cause: Cause, least: float
) -> None:
    verdict = conclude(kept(wchan))
    assert (verdict.cause, verdict.culprits) == (cause, [1])
    assert least <= verdict.confidence < least + 0.2 or wchan
    others = [alternative.cause for alternative in verdict.alternatives]
    assert others == ([] if wchan else [Cause.GPU_FAULT])


@pytest.mark.parametrize("wchan", ["poll_schedule_timeout.constprop.0", "futex_do_wait"])
def test_neither_storage_nor_a_driver_is_said_of_other_waits(wchan: str) -> None:
    verdict = conclude(kept(wchan))
    assert verdict.cause not in (Cause.IO_BLOCKED, Cause.GPU_FAULT)


def test_a_rank_that_passes_through_the_driver_is_not_kept_by_it() -> None:
    assert conclude(kept("os_acquire_mutex", states="SD")).cause is not Cause.GPU_FAULT


def behind(states: list[str]) -> CaseFacts:
    """All hosts have launched one all_reduce and stand in a line of the user's (``.item()``)."""
    size = len(states)
    views = [view(r, user(50), state="R", cpu_share=1.0) for r in range(size)]
    for v in views:
        v.groups = [GroupRecord("0", "default_pg", list(range(size)), "cuda:nccl")]
    facts = job(views)
    rows = [
        [Row("all_reduce", 6), Row("all_reduce", 7, done=False, state=state)] for state in states
    ]
    dumps = [columns(r, rows[r], members={"0": range(size)}) for r in range(size)]
    facts.graph = build_wait_for_graph(dumps, expected=list(range(size)))
    facts.dumps = {dump.rank: dump for dump in dumps}
    return facts


@pytest.mark.parametrize("culprit", [0, 2, 3])
def test_the_device_that_has_not_begun_what_all_others_run(culprit: int) -> None:
    states = ["scheduled" if rank == culprit else "started" for rank in range(4)]
    verdict = conclude(behind(states))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.GPU_FAULT)
    assert verdict.culprits == [culprit] and verdict.location is None


@pytest.mark.parametrize(
    "states",
    [["scheduled"] * 4, ["started"] * 4, ["started", "scheduled", "scheduled", "scheduled"]],
    ids=["without timing", "all begun", "most have not"],
)
def test_without_a_device_behind_nobody_is_accused(states: list[str]) -> None:
    verdict = conclude(behind(states))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])


def p2p(op: str, group: str, number: int, done: bool = True) -> Row:
    return Row(op, 0, group, done, p2p_seq=number)


def crossed(waiter: int, frames: tuple[StackFrame, ...], *, answered: bool = True) -> CaseFacts:
    """A request and an answer each step; ``waiter`` has posted its receive and sent no request."""
    server = 1 - waiter
    ask, answer = f"recv {server}<-{waiter}", f"send {server}->{waiter}"
    rows = {
        server: [p2p(ask, "1", 1), p2p(answer, "2", 1), p2p(ask, "1", 2, False)],
        waiter: [
            p2p(f"recv {waiter}<-{server}", "2", 1),
            p2p(f"send {waiter}->{server}", "1", 1),
            p2p(f"recv {waiter}<-{server}", "2", 2, False),
        ],
    }
    if answered:
        rows[server].append(p2p(answer, "2", 2, False))
    groups = {name: [0, 1] for name in "012"}
    dumps = [columns(rank, rows[rank], members=groups) for rank in (0, 1)]
    facts = job([view(rank, *frames, user(30 + rank)) for rank in (0, 1)])
    facts.graph = build_wait_for_graph(dumps, expected=[0, 1])
    facts.dumps = {dump.rank: dump for dump in dumps}
    return facts


@pytest.mark.parametrize("waiter", [0, 1])
def test_a_host_that_waits_for_its_device_before_the_launch_that_would_free_it(
    waiter: int,
) -> None:
    verdict = conclude(crossed(waiter, (StackFrame("synchronize", CUDA, 1040),)))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.HOST_SYNC)
    assert verdict.culprits == [waiter]
    assert verdict.location is not None and verdict.location.line == 30 + waiter


def test_a_host_that_does_not_wait_for_its_device_has_another_reason() -> None:
    assert conclude(crossed(1, ())).cause is not Cause.HOST_SYNC


def test_where_both_left_their_send_out_no_device_is_why() -> None:
    facts = crossed(1, (StackFrame("synchronize", CUDA, 1040),), answered=False)
    assert conclude(facts).cause is not Cause.HOST_SYNC


@pytest.mark.parametrize("strayed", [0, 1, 2])
def test_whoever_sent_to_a_host_by_mistake_is_not_kept_by_its_wait(strayed: int) -> None:
    """A ring of four: one rank sends across it once, all launch their other steps and wait."""
    rows: dict[int, list[Row]] = {rank: [] for rank in range(4)}
    for step in range(8):
        for rank, mine in rows.items():
            far = (rank + 2 if rank == strayed and step == 4 else rank + 1) % 4
            for op in (f"send {rank}->{far}", f"recv {rank}<-{(rank - 1) % 4}"):
                mine.append(Row(op, 0, done=step < 4, p2p_seq=len(mine) + 1))
    dumps = [columns(rank, rows[rank], members={"0": range(4)}) for rank in range(4)]
    waits = (StackFrame("synchronize", CUDA, 1040), user(22))
    facts = job([view(rank, *waits) for rank in range(4)])
    facts.graph = build_wait_for_graph(dumps, expected=[0, 1, 2, 3])
    facts.dumps = {dump.rank: dump for dump in dumps}
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [strayed])


def test_a_host_that_left_its_receive_out_waits_for_no_launch_of_its_own() -> None:
    """A pipeline of three: in the last step its end takes one microbatch less; all hosts wait."""
    rows: dict[int, list[Row]] = {rank: [] for rank in range(3)}

    def add(rank: int, op: str, done: bool = True, seq: int = 0) -> None:
        rows[rank].append(Row(op, seq, done=done, p2p_seq=0 if seq else len(rows[rank]) + 1))

    for step in range(5):
        last = step == 4
        for microbatch in range(3):
            lacks = last and microbatch == 2
            add(0, "send 0->1")
            add(1, "recv 1<-0")
            add(1, "send 1->2", done=not lacks)
            if not lacks:
                add(2, "recv 2<-1")
        for rank in rows:
            add(rank, "all_reduce", done=not last, seq=step + 1)
    dumps = [columns(rank, rows[rank], members={"0": range(3)}) for rank in range(3)]
    waits = (StackFrame("synchronize", CUDA, 1040), user(22))
    facts = job([view(rank, *waits) for rank in range(3)])
    facts.graph = build_wait_for_graph(dumps, expected=[0, 1, 2])
    facts.dumps = {dump.rank: dump for dump in dumps}
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [2])


def clocks(held: int | None, *, seconds: int = 6, mhz: int = 900, reason: str) -> CaseFacts:
    facts = job([view(r, user(3), quiet_s=0.1) for r in range(2)], trigger="request")
    samples = [
        {
            "gpus": [
                gpu(
                    0,
                    ranks=[0, 1],
                    clock_mhz=mhz if held is not None and n >= held else 1980,
                    clock_limit_mhz=1980,
                    temperature=91,
                    throttled=[reason] if held is not None and n >= held else [],
                )
            ]
        }
        for n in range(seconds)
    ]
    return sampled(facts, *samples)


@pytest.mark.parametrize("reason", ["hw_thermal_slowdown", "hw_power_brake", "hw_slowdown"])
def test_a_gpu_that_is_held_down_makes_the_job_slow(reason: str) -> None:
    verdict = conclude(clocks(0, reason=reason))
    assert (verdict.status, verdict.cause) == (Status.SLOW, Cause.GPU_THROTTLED)
    assert verdict.culprits == [0, 1]
    assert verdict.effect is not None
    assert verdict.effect.share_of_step == pytest.approx(1 - 900 / 1980, abs=1e-3)


@pytest.mark.parametrize(
    "facts",
    [
        clocks(0, reason="sw_power_cap"),
        clocks(4, reason="hw_thermal_slowdown"),
        clocks(0, reason="hw_thermal_slowdown", mhz=1900),
        clocks(0, reason="hw_thermal_slowdown", seconds=2),
        clocks(None, reason=""),
    ],
    ids=["rated power", "a moment", "hardly slower", "two looks", "at full speed"],
)
def test_what_holds_no_gpu_down_for_long_is_healthy(facts: CaseFacts) -> None:
    assert conclude(facts).status is Status.HEALTHY


def test_throttling_stops_no_job() -> None:
    facts = clocks(0, reason="hw_thermal_slowdown")
    assert facts.job is not None and facts.job.trigger is not None
    facts.ranks = {r: waiting(r) for r in range(2)}
    facts.job.trigger = type(facts.job.trigger)("no_progress", AT, 2.0)
    assert conclude(facts).cause is not Cause.GPU_THROTTLED


def test_who_was_killed_is_not_the_gpu_s() -> None:
    """The driver only cleans up after it."""
    killed: RankView = ended(view(2), code=None, signal=signal.SIGKILL)
    known = job([killed, *(waiting(r) for r in (0, 1, 3))], outside=[2], trigger="exit")
    cleanup = FELL.replace("79, GPU has fallen off the bus", "45, pid=102, Ch 00000010")
    verdict = conclude(sampled(known, {"gpus": [gpu(2)], "kernel": [cleanup]}))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [2])
