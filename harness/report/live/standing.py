"""The places of ranks that have not moved for a while, and for whom they wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.facts.assembly import from_case
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.plain_text import shown
from hanglab.harness.report.explanation.headlines import call_name
from hanglab.harness.report.explanation.subject import short
from hanglab.harness.report.live.ranks_at_work import JobAtWork, RankAtWork
from hanglab.harness.report.live.running_buffers import RunningBuffers
from hanglab.harness.report.rank_waits import rank_waits
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.operations import op_of_method
from hanglab.recorder.case.progress_records import OperationCall, Progress

#: Of the time, the part that may go into reading the Case anew: it is the job's machine.
_SHARE = 0.1

EVERYBODY_IS_IN_IT = "nobody: all are in it"


@dataclass(frozen=True)
class Standing:
    """The doing of one rank in words, since when, and the ranks that it waits for."""

    doing: str
    #: Wall time; of a wait that of the call, else of the last thing that was seen of the rank.
    since_ns: int
    waits_for: tuple[int, ...] = ()
    #: The reason for which nobody stands in ``waits_for`` although the rank may wait.
    untold: str = ""


class Standings:
    """Standings of resting ranks.  Read anew when other ranks rest than before, not too often."""

    def __init__(self, case: Path) -> None:
        self._case = case
        self._buffers = RunningBuffers(case)
        self._read_of: dict[int, int] = {}
        self._next_read = 0.0
        self._found: dict[int, Standing] = {}

    def of(self, job: JobAtWork) -> dict[int, Standing]:
        """By rank, for those that rest."""
        resting = {one.rank: one for one in job.ranks if one.resting}
        # A rank that has moved and rests again rests since another moment.
        wanted = {rank: one.since_ns for rank, one in resting.items()}
        begun = time.monotonic()
        # What goes on on devices moves nothing that progress files show.
        changed = wanted != self._read_of or (self._buffers.asked and self._buffers.are_due())
        if changed and begun >= self._next_read:
            self._found = self._read(job, resting)
            self._read_of = wanted
            taken = time.monotonic() - begun
            self._next_read = time.monotonic() + taken / _SHARE
        return {
            rank: standing
            for rank, standing in self._found.items()
            if wanted.get(rank) == self._read_of.get(rank) and rank in resting
        }

    def _read(self, job: JobAtWork, resting: dict[int, RankAtWork]) -> dict[int, Standing]:
        if not resting:
            return {}
        if self._buffers.are_due():
            self._buffers.ask(job)
        facts = _facts(self._case, self._buffers.taken)
        waits = rank_waits(facts.graph) if facts is not None else {}
        found = {}
        for one in job.reader.ranks:
            rank = resting.get(one.rank)
            if rank is None:
                continue
            progress = one.read(files.PROGRESS)
            call = _open_call(progress) if progress is not None else None
            on_device = one.rank in self._buffers.taken or one.rank in self._buffers.absent
            queued = facts.blocked(one.rank) if facts is not None and on_device else None
            if queued is not None:
                doing = f"its device is in {call_name(queued)}{_call_site(queued, progress)}"
            else:
                doing = _doing(facts, rank, call, progress)
            since = rank.since_ns
            if call is not None and queued is None:
                since = call.wait_entered_ns or call.entered_ns
            waits_for = tuple(sorted(waits.get(one.rank, ())))
            untold = "" if waits_for or facts is None else self._untold(facts, rank.rank)
            found[one.rank] = Standing(doing, since, waits_for, untold)
        return found

    def _untold(self, facts: CaseFacts, rank: int) -> str:
        if rank in self._buffers.absent:
            return f"not told: {self._buffers.absent[rank]}"
        if any(wait.call.rank == rank for wait in facts.graph.stalled):
            return EVERYBODY_IS_IN_IT
        if facts.graph.unfinished.get(rank) and self._buffers.absent:
            return "not told: other ranks' buffers are not there"
        return ""


def _facts(case: Path, taken: Mapping[int, bytes]) -> CaseFacts | None:
    """Facts of the latest attempt in the Case as it lies there; None where it is none yet."""
    try:
        return from_case(case, taken)
    except (InputError, OSError):  # a Case in the making, or one that has just gone
        return None


def _open_call(progress: Progress) -> OperationCall | None:
    """The latest call that the host is in or waits for, else the latest that has not finished."""
    calls = [one for one in progress.operations if not one.completed and not one.failed]
    held = [
        one
        for one in calls
        if one.returned_ns is None or (one.wait_entered_ns and one.wait_returned_ns is None)
    ]
    return max(held, key=lambda one: one.wait_entered_ns or one.entered_ns, default=None)


def _call_site(queued: Call, progress: Progress | None) -> str:
    """``, train.py:88``: the line at which the host queued an operation, where that was seen."""
    if progress is None or queued.created_ns is None:
        return ""
    for call in reversed(progress.operations):
        if call.entered_ns <= queued.created_ns:
            late = call.returned_ns is not None and call.returned_ns < queued.created_ns
            return "" if late or not call.file else f", {short(call.file)}:{call.line}"
    return ""


def _doing(
    facts: CaseFacts | None, rank: RankAtWork, call: OperationCall | None, progress: Progress | None
) -> str:
    place = f", {short(call.file)}:{call.line}" if call is not None and call.file else ""
    unfinished = facts.graph.unfinished.get(rank.rank) if facts is not None else None
    if unfinished:
        return f"in {call_name(unfinished[-1])}{place}"
    if call is not None:
        return f"in {shown(_name(call, facts, rank.rank))}{place}"
    if progress is not None and progress.collecting_since_ns:
        return "collects garbage"
    if progress is not None and progress.phase == "exiting":
        return "is being taken down"
    if progress is not None and progress.open_sections:
        return f"in section {shown(progress.open_sections[-1].section)}"
    return "before its first operation" if not rank.operations else "outside of communication"


def _name(call: OperationCall, facts: CaseFacts | None, rank: int) -> str:
    operation = op_of_method(call.method)
    view = facts.ranks.get(rank) if facts is not None else None
    names = {one.id: one.description for one in view.groups} if view is not None else {}
    group = names.get(call.group) or call.group
    return (operation.name if operation is not None else call.method) + (
        f" of {group}" if group else ""
    )
