"""What heuristics of resources have in common: a rank's trouble, and what its host says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.evidence import RankView
from hanglab.analyzer.facts.failures import Trouble, troubles_of
from hanglab.analyzer.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Location, Status
from hanglab.recorder.case.records import Raised

MIB = 1 << 20

#: Above what the text of an error alone proves, below what the kernel itself says.
CONFIRMED = 0.98


def own_troubles(known: Known) -> list[Trouble]:
    """Troubles of ranks that are nobody else's doing, the earliest first."""
    found = [t for v in known.ranks.values() if (t := troubles_of(v)) is not None]
    found = [t for t in found if not t.consequence]
    return sorted(found, key=lambda t: (t.at_ns is None, t.at_ns or 0, t.view.rank))


def raised_by(trouble: Trouble) -> Raised | None:
    """The exception that the trouble is told of by, where the rank itself wrote it down."""
    if trouble.source != "exceptions" or not trouble.view.exceptions:
        return None
    return min(trouble.view.exceptions, key=lambda raised: raised.at.wall_ns)


def text_of(trouble: Trouble) -> str:
    """All that the error says: its whole message, and those of the errors that led to it."""
    raised = raised_by(trouble)
    if raised is None:
        return trouble.detail
    return "\n".join([f"{raised.type}: {raised.message}", *raised.because])


def told_by(trouble: Trouble, pattern: re.Pattern[str]) -> str:
    """The line of the error, or of what led to it, that matches; else its first."""
    lines = text_of(trouble).splitlines()
    return next((line.strip()[:300] for line in lines if pattern.search(line)), trouble.detail)


def suffering(known: Known, culprits: Iterable[int]) -> list[int]:
    """Ranks whose own end or error only follows from a peer's."""
    mine = set(culprits)
    return [
        v.rank
        for v in known.ranks.values()
        if v.rank not in mine and (t := troubles_of(v)) is not None and t.consequence
    ]


def location_of(trouble: Trouble) -> Location | None:
    return trouble.view.location(trouble.frame) if trouble.frame else None


def ran_out(
    known: Known,
    cause: Cause,
    culprits: Sequence[RankView],
    what: str,
    evidence: Sequence[Evidence],
    *,
    location: Location | None,
    confidence: float = CONFIRMED,
) -> Proposal:
    """A rank that ended, raised or stands still for want of a resource."""
    ranks = [view.rank for view in culprits]
    after = suffering(known, ranks)
    rows = list(evidence)
    if after:
        rows.append(
            Evidence(
                "exceptions",
                None,
                f"{name_ranks(after)} then lost the connection or timed out: a consequence",
            )
        )
    return propose(
        known,
        Order.EXIT,
        cause,
        ranks,
        status=Status.HUNG if known.stuck else Status.FAILED,
        confidence=confidence,
        summary=f"{name_ranks(ranks).capitalize()} {what}{name_line(location)}; its peers "
        f"{'wait for it' if known.stuck else 'failed because it was gone'}.",
        evidence=rows,
        location=location,
        excludes=after,
    )


def size(number: int | None) -> str:
    """``7.5 MiB``: bytes as people read them."""
    if number is None:
        return "unknown"
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
