"""Faults that hanglab did to a job of its own from outside, by the truth beside its Case."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hanglab.harness.jobs.run_folder import JobFolder
from hanglab.harness.report.timeline.spans import Moment


class _StruckFault(msgspec.Struct):
    kind: str
    when: str = ""
    rank: int | None = None
    struck_ns: int | None = None
    ended_ns: int | None = None


class _FaultsOfTruth(msgspec.Struct):
    faults: list[_StruckFault] = []


def struck_faults(folder: Path) -> list[Moment]:
    """A moment for each fault that struck, and for its end; none where ``folder`` is no job's."""
    try:
        truth = msgspec.json.decode(JobFolder(folder).truth.read_bytes(), type=_FaultsOfTruth)
    except (OSError, msgspec.MsgspecError):
        return []
    found = []
    for fault in truth.faults:
        if fault.struck_ns is not None:
            words = (
                f"fault: {fault.kind}, as {fault.when}" if fault.when else f"fault: {fault.kind}"
            )
            found.append(Moment(fault.struck_ns, "fault", words, fault.rank))
        if fault.ended_ns is not None:
            found.append(Moment(fault.ended_ns, "fault", f"{fault.kind} ended", fault.rank))
    return found
