"""Errors that a rank printed before it failed: the line that is a root, and when it was printed.

All lines that the Case holds of the log are read: the root is seldom the first line, and what
follows from it is printed by the same process.  Times are those that torch's C++ puts before its
lines, ``[E504 22:44:08.389636235 file:line]``, in the zone of the host and without the year.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from hanglab.analyzer.facts.error_texts import ErrorText, classify

_STAMP = re.compile(
    r"\[[EFWI](?P<month>\d{1,2}?)(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"\.(?P<fraction>\d{1,9})"
)
#: Seconds of which the difference of any time zone is a multiple.
_ZONE_STEP_S = 900


@dataclass(frozen=True)
class PrintedError:
    """A line of a log that says why its rank failed.  ``at_ns`` is None without a time."""

    row: ErrorText
    line: str
    at_ns: int | None = None


def sticky_error(
    text: str, ended_ns: int | None = None, since_ns: int | None = None
) -> PrintedError | None:
    """The first line that no process survives, or None.

    ``ended_ns`` is about when the log ended, on the clock that the time is to be on.  With
    ``since_ns`` only lines count that are known to be of then or later: a process that was
    started again may share its log with the one before.
    """
    lines = text.splitlines()
    for place, line in enumerate(lines):
        row = classify(line, sticky=True)
        if row is None:
            continue
        at_ns = _printed_ns(lines, place, ended_ns) if ended_ns is not None else None
        if since_ns is None or (at_ns is not None and at_ns >= since_ns):
            return PrintedError(row, line.strip()[:300], at_ns)
    return None


def _printed_ns(lines: list[str], place: int, ended_ns: int) -> int | None:
    """Time of the latest stamp up to a line; the last of the log tells the zone."""
    stamps = [(i, stamp) for i, line in enumerate(lines) if (stamp := _stamp(line, ended_ns))]
    before = [stamp for i, stamp in stamps if i <= place]
    if not before:
        return None
    ended = ended_ns / 1e9
    zone = round((stamps[-1][1] - ended) / _ZONE_STEP_S) * _ZONE_STEP_S
    return int((before[-1] - zone) * 1e9)


def _stamp(line: str, about_ns: int) -> float | None:
    """Seconds since 1970, as if the line's stamp were of UTC; None without a stamp."""
    match = _STAMP.search(line)
    if match is None:
        return None
    about = datetime.fromtimestamp(about_ns / 1e9, timezone.utc)
    fraction = float(f"0.{match['fraction']}")
    month, day, hour, minute, second = (
        int(match[name]) for name in ("month", "day", "hour", "minute", "second")
    )
    found = []
    for year in (about.year - 1, about.year, about.year + 1):
        try:
            found.append(datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc))
        except ValueError:
            continue  # no such day in that year, or no stamp after all
    if not found:
        return None
    nearest = min(found, key=lambda one: abs(one - about))
    return (nearest + timedelta(seconds=fraction)).timestamp()
