"""``gpu_fault``: a rank's GPU, or its driver, that does not do what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.device_progress import unstarted_ranks
from hanglab.analyzer.facts.failures import failure_of
from hanglab.analyzer.facts.gpus import XidEvent, gpus_of, ras_cuda_errors, xid_events
from hanglab.analyzer.facts.graph_replays import differing_replays
from hanglab.analyzer.facts.kernel_sleeps import in_gpu_driver, main_sleep
from hanglab.analyzer.facts.thresholds import END_BLUR_NS
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED, CONFIRMED, INFERRED, SEEN
from hanglab.analyzer.verdict import Cause, Evidence, Location, Status
from hanglab.analyzer.wording import name_line, name_ranks


def _went_wrong(facts: CaseFacts) -> bool:
    """True if a rank has failed, though its process may not have ended yet."""
    if facts.stuck or any(failure_of(view) for view in facts.ranks.values()):
        return True
    return not facts.case and bool(facts.graph.waits)


@detector
def gpu_messages(facts: CaseFacts) -> Iterator[Proposal]:
    """The driver's messages (Xid) on the GPU or the process of a rank, the earliest of them."""
    if not _went_wrong(facts):
        return
    events = [event for event in xid_events(facts) if _tells(facts, event)]
    first_ns = min((event.at_ns for event in events), default=0)
    events = [event for event in events if event.at_ns <= first_ns + END_BLUR_NS]
    known = sorted({rank for event in events for rank in event.ranks})
    if not events:
        return
    where = name_ranks(known).capitalize() if known else _of_host(events[0].host)
    yield propose(
        facts,
        Cause.GPU_FAULT,
        known,
        # Whose GPU it is must be known to go before what is proved of ranks.
        failure_on_record=bool(known),
        confidence=CONFIRMED if known else CANDIDATES,
        summary=f"{where} met a fault of the GPU (Xid {events[0].number}): {events[0].line[:160]}",
        evidence=[
            Evidence("host", event.ranks[0] if event.ranks else None, f"the kernel says: {line}")
            for event in events
            for line in [event.line[:200]]
        ],
        location=_place(facts.ranks[known[0]]) if known else None,
    )


def _of_host(host: str) -> str:
    return f"A rank of host {host}" if host else "A rank"


def _place(view: RankView) -> Location | None:
    """Location at which the rank stands, or met the error that it ended with."""
    failure = failure_of(view)
    if failure is not None and failure.frame is not None:
        return view.location(failure.frame)
    return view.location()


def _tells(facts: CaseFacts, event: XidEvent) -> bool:
    """False where the process's own error says more than that its channel was stopped."""
    ended = any(facts.ranks[rank].ended is not None for rank in event.ranks)
    return event.broken or (facts.stuck and not ended)


@detector
def ecc_errors(facts: CaseFacts) -> Iterator[Proposal]:
    """Uncorrected memory errors that a rank's GPU counted while the job was watched."""
    if not _went_wrong(facts):
        return
    for host in facts.hosts.values():
        for gpu in gpus_of(host):
            ranks = [rank for rank in gpu.ranks if rank in facts.ranks]
            if not ranks or gpu.ecc_errors == 0:
                continue
            words = f"GPU {gpu.last.index} counted {gpu.ecc_errors} uncorrected memory errors"
            yield propose(
                facts,
                Cause.GPU_FAULT,
                ranks,
                failure_on_record=True,
                confidence=CONFIRMED,
                summary=f"The GPU of {name_ranks(ranks)} has lost data: {words} (ECC).",
                evidence=[Evidence("host", rank, words) for rank in ranks],
                location=facts.ranks[ranks[0]].location(),
            )


@detector
def nccl_cuda_errors(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks whose communicator met a CUDA error that nobody told the program of."""
    if not (facts.stuck or facts.watchdog_spoke):
        return
    for rank, _ in ras_cuda_errors(facts):
        view = facts.ranks[rank]
        if view.ended is not None:
            continue
        yield propose(
            facts,
            Cause.GPU_FAULT,
            [rank],
            failure_on_record=True,
            status=Status.HUNG,
            confidence=INFERRED,
            summary=f"NCCL met a CUDA error in rank {rank}{name_line(view.location())}, which goes "
            "on as if nothing had happened; the other ranks wait for it.",
            evidence=[Evidence("nccl_ras", rank, "its communicator has an unhandled CUDA error")],
            location=view.location(),
        )


@detector
def driver_waits(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks that the GPU's driver keeps: state D in every sample, in one of its functions."""
    if not facts.stuck:
        return
    for view in facts.ranks.values():
        main = main_sleep(facts, view)
        if view.ended is not None or not in_gpu_driver(view, main):
            continue
        where = main.wchan if main is not None and main.wchan else view.wchan
        call = f" in {main.syscall} of {main.target}" if main is not None and main.target else ""
        awaited = facts.awaited(view.rank)
        yield propose(
            facts,
            Cause.GPU_FAULT,
            [view.rank],
            failure_on_record=True,
            status=Status.HUNG,
            confidence=SEEN,
            summary=f"Rank {view.rank} is kept by the GPU's driver{name_line(view.location())} "
            f"({where or 'uninterruptible'}); the other ranks wait for it.",
            evidence=[
                Evidence(
                    "process_state",
                    view.rank,
                    f"process {view.pid} was uninterruptible (state D) in all samples{call}"
                    + (f", kernel: {where}" if where else ""),
                )
            ],
            location=view.location(),
            collective=collective_ref(awaited) if awaited is not None else None,
        )


@detector
def device_not_started(facts: CaseFacts) -> Iterator[Proposal]:
    """Ranks whose device has not begun what their host launched and all their peers' devices run.

    Something before it on its stream does not end: a kernel, or a copy.
    """
    away = any(not sink.by_exclusion for sink in facts.graph.sinks)
    if not facts.stuck or away or facts.graph.divergences or differing_replays(facts):
        return
    for wait in facts.graph.stalled:
        ranks = unstarted_ranks(facts, wait.call)
        if not ranks or any(facts.ranks[rank].state not in ("R", "S") for rank in ranks):
            continue
        call = wait.call
        whose = "its device has" if len(ranks) == 1 else "their devices have"
        yield propose(
            facts,
            Cause.GPU_FAULT,
            ranks,
            status=Status.HUNG,
            confidence=CONCLUDED,
            summary=f"{name_ranks(ranks).capitalize()} launched {call.op} number {call.seq} like "
            f"all others, but {whose} not begun it while the others' wait in it: what was launched "
            "before it does not end.",
            evidence=[
                Evidence(
                    "flight_recorder",
                    rank,
                    f"{call.op} number {call.seq} is scheduled and not started",
                )
                for rank in ranks
            ],
            collective=collective_ref(call),
            location=None,
        )
        return
