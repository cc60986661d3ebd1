"""What heuristics of resources have in common: a rank's trouble, and what its host says of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.heuristics.exits import Trouble, troubles_of
from hanglab.analyzer.heuristics.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Location, Status

MIB = 1 << 20

#: Above what the text of an error alone proves, below what the kernel itself says.
CONFIRMED = 0.98


def own_troubles(known: Known) -> list[Trouble]:
    """Troubles of ranks that are nobody else's doing, the earliest first."""
    found = [t for v in known.ranks.values() if (t := troubles_of(v)) is not None]
    found = [t for t in found if not t.consequence]
    return sorted(found, key=lambda t: (t.at_ns is None, t.at_ns or 0, t.view.rank))


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
