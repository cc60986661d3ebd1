"""The part of a log that is past: errors that its job survived, and attempts that are over.

A job went on after an error where what it writes again and again, as for each step, it wrote
before and five times more behind it, at later and later times; its peers may come to one or two
steps more before they wait.  An attempt is over where its launcher says that it starts the ranks
anew, and a job sound where it says that all have succeeded.
"""

from __future__ import annotations

import re
from collections import Counter

from hanglab.analyzer.logs.stamps import stamp_ns

#: torch's elastic agent (agent/server/api.py), of ranks that it starts anew, and of good ends.
_OVER = re.compile(
    r"will restart worker group|worker group successfully finished|WorkerState\.SUCCEEDED"
)
_SUCCESS = re.compile(r"worker group successfully finished|WorkerState\.SUCCEEDED")
#: Lines of errors, and what many ranks write when one of them has failed.
_OF_FAILURE = re.compile(
    r"Traceback|Error|error|rror:|exception|[Ww]atchdog|ProcessGroup|closing signal|exitcode"
    r"|exit code|terminate called|what\(\):|^frame #|signal|[Kk]illed|^\[rank\d+\]|^\s|^[-=*]{8}"
    r"|srun:|slurmstepd:|[Ff]ailed|FAILED|[Rr]etry|NCCL WARN|WARN|Exception|^\w+:$"
)
_ERROR = re.compile(r"Traceback \(most recent|^\[rank\d+\]|CUDA error|terminate called")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_AGAIN = 3
#: Steps that ranks do not get on without one of them.
_AFTER = 5
_SECOND_NS = 1_000_000_000


def without_past_errors(text: str, year: int) -> str:
    """The log without lines of errors after which its job went on; ``year`` is of its times."""
    lines = text.split("\n")
    over = max((n + 1 for n, line in enumerate(lines) if _OVER.search(line)), default=0)
    until = max(over, _went_on(lines, year))
    kept = [line for line in lines[:until] if not _OF_FAILURE.search(line)]
    return "\n".join([*kept, *lines[until:]]) if len(kept) < until else text


def success_in(text: str) -> str:
    """The line in which a launcher says that all of its ranks have succeeded; "" without."""
    return next((line.strip() for line in text.splitlines() if _SUCCESS.search(line)), "")


def _went_on(lines: list[str], year: int) -> int:
    """Number of the line with which the job went on after an error; 0 if it never did.

    It has a time: logs of several ranks may stand one behind the other.
    """
    first = next((n for n, line in enumerate(lines) if _ERROR.search(line)), len(lines))
    before = [_kind(line) for line in lines[:first]]
    usual = {kind for kind, times in Counter(before).items() if kind and times >= _AGAIN}
    if not usual or first == len(lines):
        return 0
    times = [at for line in lines[:first] if (at := stamp_ns(line, year)) is not None]
    latest, found = max(times, default=0), []
    for number, line in enumerate(lines[first:], first):
        at_ns = stamp_ns(line, year) if _kind(line) in usual else None
        if at_ns is not None and at_ns // _SECOND_NS > latest // _SECOND_NS:
            latest = at_ns
            found.append(number)
    return found[-_AGAIN] if len(found) >= _AFTER else 0


def _kind(line: str) -> str:
    """The form of lines that are written again and again; "" for one of an error."""
    return "" if _OF_FAILURE.search(line) else _NUMBER.sub("#", line).strip()
