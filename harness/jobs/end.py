"""End of a job, as the harness saw it, and the error that came first."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanglab.harness.faults.injection import Strike
from hanglab.harness.launchers.protocol import RankExit
from hanglab.harness.scenarios.declaration import Scenario


@dataclass
class Ending:
    """End of a job, as the harness saw it."""

    strikes: list[Strike] = field(default_factory=list)
    #: In the order in which they were seen; those that hanglab ended are not among them.
    exits: list[RankExit] = field(default_factory=list)
    #: The agent's trigger; None where every rank ended by itself.
    trigger: dict[str, Any] | None = None
    interrupted: bool = False

    @property
    def failed(self) -> list[RankExit]:
        return [ended for ended in self.exits if ended.code != 0 or ended.signal]


#: Anywhere in a line: torch puts ``[rank1]: `` before tracebacks, groups of exceptions a ``|``.
_TRACE_LINE = re.compile(r'\bFile "(?P<file>[^"\n]+)", line (?P<line>\d+)')


def raised_elsewhere(scenario: Scenario, case: Path, ending: Ending) -> str | None:
    """Traceback of the first rank that failed, if it never came past a marked line.

    Victims raise too, when their peer dies, so the first one decides; after a
    fault from outside nothing is held against the body.
    """
    if not ending.failed or any(strike.struck for strike in ending.strikes):
        return None
    text = first_error(case, ending)
    if "Traceback (most recent call last)" not in text:
        return None
    marked = {*scenario.fault_lines, *scenario.seen_lines}
    for match in _TRACE_LINE.finditer(text):
        if Path(match["file"]).name == scenario.program.name and int(match["line"]) in marked:
            return None
    return text


def first_error(case: Path, ending: Ending) -> str:
    """End of the standard error of the rank that raised first, or else failed first."""
    if not ending.failed:
        return ""
    first = ending.failed[0]
    raised_at = _raised_at(case)
    known = [ended for ended in ending.failed if ended.rank in raised_at]
    if known and first.signal is None:
        first = min(known, key=lambda ended: raised_at[ended.rank])
    with contextlib.suppress(OSError):
        return first.stderr.read_text(errors="replace")[-8000:]
    return ""


def _raised_at(case: Path) -> dict[int, int]:
    """Wall time at which each rank's first exception reached the top, by the Case."""
    from hanglab.recorder.case import evidence_files as files
    from hanglab.recorder.case.reader import CaseReader, NotACase

    try:
        ranks = CaseReader(case).ranks
    except NotACase:
        return {}
    return {
        rank.rank: min(raised.at.wall_ns for raised in exceptions)
        for rank in ranks
        if (exceptions := rank.read(files.EXCEPTIONS))
    }
