"""Jobs that are being recorded: the Case that a process belongs to, and the end of one."""

from __future__ import annotations

from pathlib import Path

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.recording.running_jobs import check_process
from hanglab.harness.report.live.ranks_at_work import JobAtWork, agents, agents_of
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.folders import HOSTS
from hanglab.recorder.case.reader import CaseReader, NotACase
from hanglab.recorder.system import procfs


class NotRecorded(HanglabError):
    """Nobody records the job that a process belongs to."""

    advice = (
        "`hanglab record -- COMMAND` records a job from its start; `hanglab capture PID` looks at "
        "one that runs already."
    )


def case_to_watch(target: str) -> Path:
    """The Case that ``target`` names, or that its process is recorded into.

    Raises NoSuchProcess, NotYours, NotRecorded, UsageError.
    """
    if not target.isdecimal():
        case = Path(target)
        if not (case / HOSTS).is_dir():
            raise UsageError(f"{case} is no Case.", "Give its folder, or a process of the job.")
        return case
    pid = int(target)
    check_process(pid)
    below = procfs.descendants([pid])[pid]
    for one in (pid, *below):
        named = procfs.environment(one).get("HANGLAB_CASE")
        if named and (Path(named) / HOSTS).is_dir():
            return Path(named)
    # Jobs that record themselves, and forked ranks, have it in no environment that shows.
    family = {pid, *below, *_above(pid)}
    for _, case in agents():
        if family & _processes(case):
            return case
    raise NotRecorded(f"Nobody records the job that process {pid} belongs to.")


def is_over(job: JobAtWork) -> bool:
    """True once nothing more can come into the Case that its verdict would have to wait for."""
    record = job.job
    if record is not None and record.ended is not None:
        return True
    if record is not None and record.trigger is not None and record.trigger.kind != "request":
        written = job.reader.manifest.written if job.reader.manifest is not None else None
        whole = written is not None and written.wall_ns >= record.trigger.at.wall_ns
        patience = record.hang_after_s or 0.0
        at_rest = all(one.rested_s >= patience for one in job.alive)
        if whole and (record.trigger.kind == "no_progress" or at_rest):
            return True
    return not job.alive and not agents_of(job.case)


def _above(pid: int) -> set[int]:
    found = set()
    while (stat := procfs.stat(pid)) is not None and stat.ppid > 1:
        pid = stat.ppid
        found.add(pid)
    return found


def _processes(case: Path) -> set[int]:
    """Processes of the ranks that a Case has so far."""
    try:
        reader = CaseReader(case)
    except NotACase:
        return set()
    return {
        process.pid for rank in reader.ranks if (process := rank.read(files.PROCESS)) is not None
    }
