"""A job of Slurm as its controller tells of it: when it starts, and why it has ended."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress

from hanglab.harness.launchers.protocol import LaunchError
from hanglab.harness.launchers.slurm.commands import ask
from hanglab.harness.launchers.slurm.errors import NotStarted
from hanglab.recorder.case.records import SchedulerRecord
from hanglab.recorder.case.writer import clock

#: Seconds that a job may wait in the queue; they are none of its own time.
WAIT = "HANGLAB_SLURM_WAIT"
_WAIT_S = 600.0
#: Between two looks at a job that waits: a controller serves many.
_FIRST_LOOK_S = 0.1
_LOOK_S = 2.0
#: Between two looks at one that ends.
_NOTED_LOOK_S = 0.5
_RUNNING = ("RUNNING", "COMPLETING")
#: Reasons that no waiting mends, as squeue names them.
_FINAL = re.compile(
    r"PartitionDown|PartitionInactive|PartitionNodeLimit|PartitionTimeLimit|BadConstraints"
    r"|InvalidQOS|InvalidAccount|JobHeld|DependencyNeverSatisfied|PartitionConfig"
)


def await_start(job: str, stop: threading.Event | None) -> list[str]:
    """Names of the nodes of a job, once Slurm has started it.

    Raises NotStarted with Slurm's reason, also once ``stop`` is set, and other LaunchErrors.
    """
    limit_s = _limit_s()
    until = time.monotonic() + limit_s
    pause = _FIRST_LOOK_S
    while True:
        words = ask("squeue", "--noheader", "--jobs", job, "--format=%T|%N|%r").strip().split("|")
        state, nodes, reason = words if len(words) == 3 else ("gone", "", "it has ended")
        if state == "RUNNING" and nodes:
            return ask("scontrol", "show", "hostnames", nodes).split()
        if state not in ("PENDING", "CONFIGURING", "RUNNING"):
            raise NotStarted(f"Slurm ended the job before it had begun ({state}: {reason}).")
        if _FINAL.search(reason):
            raise NotStarted(f"Slurm does not start the job ({reason}).")
        if time.monotonic() > until:
            raise NotStarted(f"Slurm has not started the job within {limit_s:g} s ({reason}).")
        if stop is not None and stop.wait(pause):
            raise NotStarted("hanglab was interrupted while the job waited in Slurm's queue.")
        if stop is None:
            time.sleep(pause)
        pause = min(2 * pause, _LOOK_S)


def _limit_s() -> float:
    with suppress(KeyError, ValueError):
        return float(os.environ[WAIT])
    return _WAIT_S


def record_at_end(job: str, seconds: float) -> SchedulerRecord | None:
    """Record of a job that is being ended, once its end is noted or that many have passed."""
    until = time.monotonic() + seconds
    while True:
        record = record_of(job)
        if record is None or record.state not in _RUNNING or time.monotonic() >= until:
            return record
        time.sleep(_NOTED_LOOK_S)


def record_of(job: str) -> SchedulerRecord | None:
    """Record of a job, which Slurm keeps for some minutes after its end; None without one.

    By name and value, as ``scontrol show job --oneliner`` has them since long before it had JSON.
    """
    try:
        said = ask("scontrol", "--oneliner", "show", "job", job)
    except LaunchError:
        return None
    found = dict(re.findall(r"(?<!\S)(\w+)=(\S*)", said))
    restarts = found.get("Restarts", "")
    state = found.get("JobState", "")
    if (state, found.get("Reason")) == ("COMPLETING", "TimeLimit"):
        state = "TIMEOUT"  # as it is called once all its processes have ended
    return SchedulerRecord(
        at=clock(),
        name="slurm",
        job=job,
        state=state,
        reason="" if found.get("Reason") in (None, "None") else found["Reason"],
        restarts=int(restarts) if restarts.isdecimal() else 0,
    )
