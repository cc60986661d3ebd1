"""Times that loggers put before their lines, all in the zone of the host that wrote them."""

from __future__ import annotations

import re
from datetime import datetime, timezone

#: Of torch's C++, which leaves the year out: ``[rank3]:[E504 22:44:08.389636235 file:line]``.
_OF_TORCH = re.compile(
    r"\[[EFWI](?P<month>\d{1,2}?)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})?"
)
_WHOLE = re.compile(
    r"(?<!\d)(?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)[ T_](?P<clock>\d\d:\d\d:\d\d)"
    r"(?P<fraction>[.,]\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)


def stamp_ns(line: str, year: int) -> int | None:
    """Time of a line, in nanoseconds since 1970 as if the host's zone were UTC; None without one.

    ``year`` is that of stamps that have none.  A time with a zone is of another clock than those
    without, and none here.
    """
    for pattern in (_OF_TORCH, _WHOLE):
        match = pattern.search(line)
        if match is None:
            continue
        parts = match.groupdict()
        if parts.get("zone"):
            continue
        hour, minute, second = map(int, parts["clock"].split(":"))
        try:
            at = datetime(
                int(parts.get("year") or year),
                int(parts["month"]),
                int(parts["day"]),
                hour,
                minute,
                second,
                tzinfo=timezone.utc,
            )
        except ValueError:  # no day, or no time, that there is
            continue
        fraction = float(f"0{(parts['fraction'] or '.0').replace(',', '.')}")
        return int(at.timestamp()) * 1_000_000_000 + int(fraction * 1e9)
    return None
