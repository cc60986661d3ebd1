"""Ends that a cluster's scheduler gave a job, which say nothing of the job itself."""

from __future__ import annotations

import signal

from hanglab.recorder.case.records import Clock, Exit, SchedulerRecord

#: A signal arrives before its message does: ends by one so shortly before were by the same.
_BEFORE_NS = 1_000_000_000
#: States of jobs that ended as their own command did: then their steps are ended, agents' too.
_BY_ITSELF = frozenset({"COMPLETED", "FAILED"})
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGKILL})

#: Words for why, and what to do about it, by the scheduler's state of the job.
_WHY = {
    "TIMEOUT": (
        "at its time limit",
        "Ask for more time (--time), or have the job save its state and be continued.",
    ),
    "DEADLINE": ("at its deadline", "Ask for a later deadline, or submit it earlier."),
    "PREEMPTED": (
        "to give its nodes to a job of higher priority",
        "Start it again, or have it requeued and continued from its last checkpoint; a QOS or "
        "partition that is not preempted keeps its nodes.",
    ),
    "CANCELLED": (
        "because somebody cancelled it",
        "Ask who cancelled it: its owner or an administrator, with scancel.",
    ),
    "NODE_FAIL": ("because a node failed", "Start it again; `sinfo -R` says what nodes lack."),
    "REQUEUED": (
        "to start it anew",
        "Look at the attempt that follows; `scontrol show job` says how often it was requeued.",
    ),
}
_UNSAID = ("and does not say why", "Ask `sacct -j` or the cluster's administrators for the reason.")


def asked_to_end(record: SchedulerRecord | None) -> Clock | None:
    """Time at which the scheduler asked the job to end, by the clock of the job; else None."""
    return None if record is None or record.state in _BY_ITSELF else record.asked_to_end


def by_scheduler(end: Exit, record: SchedulerRecord | None) -> bool:
    """True for an end that the scheduler's asking brought about."""
    asked = asked_to_end(record)
    if asked is None:
        return False
    earliest = asked.wall_ns - (_BEFORE_NS if end.vanished or end.signal in _SIGNALS else 0)
    return end.at.wall_ns >= earliest


def told_why(record: SchedulerRecord) -> tuple[str, str]:
    """Sentence on how the scheduler ended the job, and what to do."""
    why, advice = _WHY.get(record.state, _UNSAID)
    return f"{record.name.capitalize()} ended the job {why}", advice
