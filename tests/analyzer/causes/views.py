"""Builders of evidence for tests of single heuristics.

Whole Cases from real jobs are judged in tests/metamorphic and by `make run`;
here one kind of evidence varies at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Sink, Wait, WaitForGraph, WaitKind
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.records import (
    Clock,
    Exit,
    JobRecord,
    Movement,
    ProcessSample,
    Python,
    Raised,
    RankProcess,
    StackFrame,
    StackSample,
    ThreadStack,
    Trigger,
)

AT = Clock(1_000, 1_000)
C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
THREADING = "/usr/lib/python3.11/threading.py"
QUEUE = "/usr/lib/python3.11/queue.py"


def user(line: int, function: str = "train", file: str = "/home/me/train.py") -> StackFrame:
    return StackFrame(function, file, line)


def sample(
    pid: int, *frames: StackFrame, kind: str = "rank", gil: bool = False, active: bool = False
) -> StackSample:
    thread = ThreadStack(
        frames=list(frames), main=True, os_thread_id=pid, owns_gil=gil, active=active
    )
    return StackSample(at=AT, pid=pid, kind=kind, threads=[thread])  # type: ignore[arg-type]


def view(
    rank: int,
    *frames: StackFrame,
    state: str = "S",
    wchan: str = "futex_do_wait",
    cpu_share: float = 0.0,
    quiet_s: float = 2.0,
    gil: bool = False,
    has_dump: bool = True,
) -> RankView:
    pid = 100 + rank
    return RankView(
        rank=rank,
        process=RankProcess(
            pid=pid, rank=rank, world_size=4, started=AT, python=Python(version="3.11")
        ),
        stacks=[sample(pid, *frames, gil=gil, active=gil)] if frames else [],
        processes=[
            ProcessSample(at=AT, pid=pid, ppid=1, kind="rank", state=state, cpu_s=1.0, wchan=wchan)
            for _ in range(2)
        ],
        movement=Movement(quiet_s=quiet_s, longest_pause_s=0.01, cpu_share=cpu_share),
        has_dump=has_dump,
    )


def waiting(rank: int, line: int = 20) -> RankView:
    return view(rank, StackFrame("all_reduce", C10D, 3245), user(line))


def raised(v: RankView, type_: str, message: str, *frames: StackFrame, at: int = 1_000) -> RankView:
    v.exceptions.append(Raised(at=Clock(at, at), type=type_, message=message, frames=list(frames)))
    return ended(v, code=1)


def ended(v: RankView, code: int | None = 0, signal: int | None = None) -> RankView:
    v.exit = Exit(at=AT, code=code, signal=signal)
    return v


def progress(v: RankView, step: int) -> RankView:
    v.progress = Progress(
        pid=1,
        rank=v.rank,
        wall_minus_mono_ns=0,
        heartbeat_mono_ns=0,
        step=step,
        step_started_ns=None,
        operations_total=0,
    )
    return v


def job(
    views: Iterable[RankView],
    *,
    outside: Iterable[int] = (),
    trigger: str | None = "no_progress",
) -> CaseFacts:
    """Ranks of ``outside`` are awaited in one all_reduce by all the others."""
    ranks = {v.rank: v for v in views}
    members = tuple(sorted(ranks))
    group = ProcessGroup("0", members, "default_pg")
    outside = tuple(outside)
    inside = [r for r in members if r not in outside and ranks[r].exit is None]
    calls = {r: Call(r, group, 7, "all_reduce") for r in inside}
    return CaseFacts(
        graph=WaitForGraph(
            ranks=members,
            expected=members,
            groups=[group],
            waits=[Wait(calls[r], WaitKind.NOT_ENTERED, outside) for r in inside if outside],
            sinks=[
                Sink(r, Call(r, group, 7, "all_reduce"), outside=True, victims=tuple(inside))
                for r in outside
            ],
        ),
        ranks=ranks,
        job=JobRecord(
            world_size=len(members),
            started=AT,
            hang_after_s=1.5,
            trigger=Trigger(trigger, AT, 2.0) if trigger else None,  # type: ignore[arg-type]
        ),
        case=True,
    )
