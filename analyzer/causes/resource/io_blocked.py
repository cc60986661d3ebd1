"""A rank that a file system keeps: ``io_blocked`` where a call on a file does not come back."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import UNANSWERED_S
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.kernel_sleeps import (
    in_gpu_driver,
    is_uninterruptible,
    main_sleep,
    wait_channels,
)
from hanglab.analyzer.facts.wait_channels import Channel
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import CANDIDATES, LIKELY_ALTERNATIVE, PROVED, SEEN
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case.host_records import FileSystem, SleepingThread


@detector_of(Cause.IO_BLOCKED)
def io_blocked(facts: CaseFacts) -> Iterator[Proposal]:
    """The rank's main thread is in a call on a file: in state D, or on a disk without an answer."""
    for view in facts.ranks.values():
        if view.ended is not None or view.state in ("T", "t") or view.is_stopped:
            continue
        main = main_sleep(facts, view)
        if main is None or in_gpu_driver(view, main):
            continue
        silent = _silent(facts, view, main)
        if silent is None and not _kept_by_storage(view, main):
            continue
        yield _proposal(facts, view, main, silent)


def _kept_by_storage(view: RankView, main: SleepingThread) -> bool:
    """State D in every sample of the capture, and the kernel's function is one of storage."""
    return is_uninterruptible(view) and Channel.STORAGE in wait_channels(view, main)


def _silent(facts: CaseFacts, view: RankView, main: SleepingThread) -> FileSystem | None:
    """The file system that the call is about, if it does not answer the recorder either."""
    for space in facts.host_of(view.rank).spaces(view.rank):
        if space.unanswered_s < UNANSWERED_S or view.rank not in space.ranks:
            continue
        if main.target.startswith(space.path.rstrip("/") + "/") or main.state == "D":
            return space
    return None


def _proposal(
    facts: CaseFacts, view: RankView, main: SleepingThread, silent: FileSystem | None
) -> Proposal:
    location = view.location()
    about = f" of {main.target}" if main.target else ""
    call = f"the system call {main.syscall}{about}" if main.syscall else "the kernel"
    evidence = [
        Evidence(
            "process_state",
            view.rank,
            f"its main thread is in {call}, state {main.state}"
            + (f", kernel: {main.wchan}" if main.wchan else ""),
        )
    ]
    if silent is not None:
        evidence.append(
            Evidence(
                "host",
                view.rank,
                f"{silent.path} ({silent.filesystem}) did not answer for "
                f"{silent.unanswered_s:.1f} s when asked for its size",
            )
        )
    awaited = facts.awaited(view.rank)
    return propose(
        facts,
        Cause.IO_BLOCKED,
        [view.rank],
        status=Status.HUNG,
        confidence=PROVED,
        summary=f"Rank {view.rank} waits for storage{name_line(location)}: {call} does not come "
        "back; the other ranks wait for it.",
        evidence=evidence,
        location=location,
        collective=collective_ref(awaited) if awaited is not None else None,
    )


@detector_of(Cause.IO_BLOCKED)
def blocked_in_kernel(facts: CaseFacts) -> Iterator[Proposal]:
    """``io_blocked``: uninterruptible (state D) in every sample at capture, without progress.

    Where the kernel does not say what for, storage is only the most likely.
    """
    for view in facts.ranks.values():
        if view.ended is not None or not is_uninterruptible(view):
            continue
        channels = wait_channels(view, main_sleep(facts, view))
        if channels and Channel.STORAGE not in channels:
            continue
        sure = bool(channels)
        looks = sum(1 for s in view.processes if s.kind == "rank" and s.capture)
        sample = facts.host_of(view.rank).latest
        has_gpu = sample is not None and bool(sample.gpus)
        yield propose(
            facts,
            Cause.IO_BLOCKED,
            [view.rank],
            status=Status.HUNG,
            confidence=SEEN if sure else CANDIDATES,
            summary=f"Rank {view.rank} is blocked inside the kernel "
            f"({view.wchan or 'uninterruptible'}); the other ranks wait for it.",
            evidence=[
                Evidence(
                    "process_state",
                    view.rank,
                    f"process {view.pid} was uninterruptible (state D) in {looks} samples"
                    + (f", waiting in {view.wchan}" if view.wchan else ""),
                )
            ],
            location=view.location(),
            alternatives=[(Cause.GPU_FAULT, [view.rank], LIKELY_ALTERNATIVE)]
            if has_gpu and not sure
            else [],
        )
