"""A rank that a file system keeps: ``io_blocked`` where a call on a file does not come back."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import UNANSWERED_S
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.proposal import Order, Proposal, detector, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case.host_records import FileSystem, SleepingThread

#: Functions of the kernel in which a process waits for storage or for a server of files.
_STORAGE = (
    "fuse", "request_wait_answer", "nfs", "rpc_wait", "ceph", "lustre", "cl_sync", "ll_",
    "folio_wait", "wait_on_page", "filemap", "io_schedule", "jbd2", "ext4", "xfs", "btrfs",
    "sb_start_write", "percpu_rwsem_wait", "blk_", "wait_on_buffer", "smb", "cifs", "p9_", "bio_",
)  # fmt: skip


@detector
def io_blocked(facts: CaseFacts) -> Iterator[Proposal]:
    """The rank's main thread is in a call on a file: in state D, or on a disk without an answer."""
    if not facts.stuck:
        return
    for view in facts.ranks.values():
        load = facts.load_of(view.rank)
        if view.ended is not None or load is None or view.state in ("T", "t"):
            continue
        main = next((thread for thread in load.sleeping if thread.tid == load.pid), None)
        if main is None:
            continue
        silent = _silent(facts, view, main)
        if silent is None and not _kept_by_storage(view, main):
            continue
        yield _proposal(facts, view, main, silent)


def _kept_by_storage(view: RankView, main: SleepingThread) -> bool:
    """State D in every sample of the capture, and the kernel's function is one of storage."""
    states = [s.state for s in view.processes if s.kind == "rank" and s.capture]
    waits = main.wchan + "".join(s.wchan for s in view.processes if s.kind == "rank")
    uninterruptible = len(states) >= 2 and all(state == "D" for state in states)
    return uninterruptible and any(part in waits for part in _STORAGE)


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
        Order.PROCESS,
        Cause.IO_BLOCKED,
        [view.rank],
        status=Status.HUNG,
        confidence=0.97,
        summary=f"Rank {view.rank} waits for storage{name_line(location)}: {call} does not come "
        "back; the other ranks wait for it.",
        evidence=evidence,
        location=location,
        collective=collective_ref(awaited) if awaited is not None else None,
    )


@detector
def blocked_in_kernel(facts: CaseFacts) -> Iterator[Proposal]:
    """``io_blocked``: uninterruptible (state D) in every sample at capture, without progress."""
    if not facts.stuck:
        return
    for view in facts.ranks.values():
        samples = [s for s in view.processes if s.kind == "rank" and s.capture]
        if len(samples) < 2 or view.ended is not None or not view.always_in_state("D"):
            continue
        yield propose(
            facts,
            Order.PROCESS,
            Cause.IO_BLOCKED,
            [view.rank],
            status=Status.HUNG,
            confidence=0.9,
            summary=f"Rank {view.rank} is blocked inside the kernel "
            f"({samples[-1].wchan or 'uninterruptible'}); the other ranks wait for it.",
            evidence=[
                Evidence(
                    "process_state",
                    view.rank,
                    f"process {view.pid} was uninterruptible (state D) in {len(samples)} samples"
                    + (f", waiting in {samples[-1].wchan}" if samples[-1].wchan else ""),
                )
            ],
            location=view.location(),
        )
