"""``slow_link`` between two GPUs: what they send each other takes far longer than elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from hanglab.analyzer.causes.thresholds import (
    FEWEST_OTHER_LINKS,
    SHORTEST_TRANSFER_MS,
    SLOWER_LINK,
)
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.transfer_times import Transfers, observed_ms, transfers
from hanglab.analyzer.proposal import Proposal, detector_of, propose
from hanglab.analyzer.strengths import INFERRED
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.analyzer.wording import name_ranks
from hanglab.recorder.slowness.thresholds import LOSS_SHARE

Pair = frozenset[int]


@detector_of(Cause.SLOW_LINK)
def slow_device_link(facts: CaseFacts) -> Iterator[Proposal]:
    """A link of two ranks that have sound links to others, so that neither GPU is what is slow."""
    if not facts.case:
        return
    found = transfers(facts)
    usual = {one: _usual_ms(facts, one, found) for one in found}
    slow: defaultdict[Pair, list[Transfers]] = defaultdict(list)
    for one in found:
        reference = usual[one]
        if reference is None or one.quick_ms < SHORTEST_TRANSFER_MS:
            continue
        if one.quick_ms >= SLOWER_LINK * reference:
            slow[one.ranks].append(one)
    sound = {rank for one in found if one.ranks not in slow for rank in one.ranks}
    for pair, mine in slow.items():
        time_ms = max(observed_ms(facts, rank) for rank in pair)
        share = sum(one.busy_ms for one in mine) / time_ms if time_ms else 0.0
        if share < LOSS_SHARE or not pair <= sound:
            continue
        words = name_ranks(sorted(pair))
        worst = max(mine, key=lambda one: one.busy_ms)
        yield propose(
            facts,
            Cause.SLOW_LINK,
            sorted(pair),
            status=Status.SLOW,
            confidence=INFERRED,
            summary=f"The link between the GPUs of {words} takes {worst.typical_ms:.1f} ms for "
            f"what takes others {usual[worst]:.1f} ms, {share:.0%} of the time; the job waits "
            "for it.",
            evidence=[
                Evidence(
                    "flight_recorder",
                    one.source,
                    f"{_name(one)} takes {one.typical_ms:.1f} ms at the end that began last; the "
                    f"like of it between other ranks takes {usual[one]:.1f} ms",
                )
                for one in mine
            ],
            effect=Effect(section=None, ms_per_step=0.0, share_of_step=round(min(share, 1.0), 4)),
        )


def _usual_ms(facts: CaseFacts, one: Transfers, found: list[Transfers]) -> float | None:
    """Median time of the like of it on other links that are as long; None if those are few."""
    times: dict[Pair, float] = {}
    for other in found:
        if (
            other.kind == one.kind
            and other.ranks != one.ranks
            and _far(facts, other) == _far(facts, one)
        ):
            times[other.ranks] = max(other.typical_ms, times.get(other.ranks, 0.0))
    return median(times.values()) if len(times) >= FEWEST_OTHER_LINKS else None


def _far(facts: CaseFacts, one: Transfers) -> bool:
    """True where it passes from one host to another."""
    return len({facts.ranks[rank].host for rank in one.ranks if rank in facts.ranks}) > 1


def _name(one: Transfers) -> str:
    name, elements, _ = one.kind
    return f"{name} of {elements} elements {one.source} -> {one.target}"
