"""Causes that no replay can come to, by what the evidence has of how the culprits ended.

Calls are made again, and ends that a script can bring about by itself.  What a host, its devices or
a network do to a rank is in neither: a replay would stand still there for another cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.graph_replays import differing_replays
from hanglab.analyzer.recorded_endings import EndingKind, RecordedEnding
from hanglab.analyzer.verdict import Cause, Verdict
from hanglab.analyzer.wording import name_ranks

#: What would have to fail again, of causes that lie outside of every script.
_OUTSIDE: Mapping[Cause, str] = {
    Cause.IO_BLOCKED: "a file system or block device that does not answer",
    Cause.OOM_KILLED: "memory that the kernel takes back by ending a process",
    Cause.HOST_LOST: "a cluster that takes a host away",
    Cause.MEMORY_PRESSURE: "memory that its control group or host is short of",
    Cause.CPU_THROTTLED: "a limit on processor time",
    Cause.PARTITION: "a network that loses what ranks send",
    Cause.SLOW_LINK: "a network that is slow",
    Cause.FABRIC_STALLED: "a fabric that delivers nothing",
    Cause.RENDEZVOUS: "the forming of the job, which comes before all calls",
    Cause.GPU_FAULT: "a GPU or its driver that has failed",
    Cause.GPU_THROTTLED: "a GPU that runs slower than it should",
    Cause.HOST_SYNC: "a host that waits for what its device has still to run",
}
_EXITS = frozenset({EndingKind.RAISES, EndingKind.HANDLES, EndingKind.EXITS, EndingKind.KILLED})
#: Ends of which each culprit must have one for a replay to come to the cause.
_ENDS: Mapping[Cause, Collection[EndingKind]] = {
    Cause.EXCEPTION: _EXITS,
    Cause.CRASH: _EXITS,
    Cause.LOADER_WORKER_DIED: _EXITS,
    Cause.GPU_OOM: _EXITS,
    Cause.SHM_EXHAUSTED: _EXITS,
    Cause.FD_EXHAUSTED: _EXITS,
    Cause.PIDS_EXHAUSTED: _EXITS,
    Cause.DISK_FULL: _EXITS | {EndingKind.FILLS_DISK, EndingKind.WAITS_FOR_FULL_DISK},
    Cause.PROCESS_FROZEN: {EndingKind.STOPPED},
    Cause.GIL_HELD: {EndingKind.HOLDS_GIL},
    Cause.BUSY_LOOP: {EndingKind.SPINS},
    Cause.LOADER_STUCK: {EndingKind.WAITS_FOR_LOADER},
    Cause.TEARDOWN: {EndingKind.WAITS_AT_EXIT},
    Cause.FORK_DEADLOCK: {EndingKind.FORKS_WITH_LOCK},
    Cause.STORE_LOST: {EndingKind.KEEPS_STORE},
    Cause.PYTHON_DEADLOCK: {
        EndingKind.WAITS_FOR_LOCK,
        EndingKind.WAITS_FOR_FILE_LOCK,
        EndingKind.HOLDS_FILE_LOCK,
        EndingKind.SETS_KEY,
        EndingKind.WAITS_FOR_KEY,
        EndingKind.POLLS_FOR_KEY,
    },
}


def reason_outside(
    verdict: Verdict,
    endings: Mapping[int, RecordedEnding],
    before_stop: Mapping[int, Sequence[RecordedEnding]],
    *,
    case: bool,
) -> str | None:
    """The reason for which a replay comes to another cause; None where it can come to this one.

    ``case``: there is more than dumps, so what tells an end would have been found.
    """
    cause = verdict.cause
    if cause is None or not verdict.culprits:
        return None
    who = f"{cause.value} by {name_ranks(verdict.culprits)}"
    if cause in _OUTSIDE:
        return (
            f"This hang cannot be replayed: its cause, {who}, lies outside of what ranks call. "
            f"It takes {_OUTSIDE[cause]}, which no script brings about."
        )
    known = _ENDS.get(cause)
    told = {rank: [*before_stop.get(rank, ())] for rank in verdict.culprits}
    for rank, ending in endings.items():
        told.setdefault(rank, []).append(ending)
    lacking = [
        rank
        for rank in verdict.culprits
        if known is not None and not any(one.kind in known for one in told[rank])
    ]
    if lacking and case:
        return (
            f"This hang cannot be replayed: its cause, {who}, is told by what is no call, and the "
            f"evidence has nothing of {name_ranks(lacking)} that a script can do again for it."
        )
    return None


def reason_in_graphs(facts: CaseFacts, verdict: Verdict) -> str | None:
    """The reason for which no buffer has the calls in which ranks differ; None where one may."""
    differing = differing_replays(facts) if facts.stuck and verdict.collective is None else None
    if differing is None or not differing[1].keys() >= set(verdict.culprits):
        return None
    return (
        f"This hang cannot be replayed: {name_ranks(verdict.culprits)} differ"
        f"{'' if len(verdict.culprits) > 1 else 's'} in what replays of CUDA graphs launched, and "
        "no buffer has an entry of that."
    )


__all__ = ["reason_in_graphs", "reason_outside"]
