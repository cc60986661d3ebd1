"""Causes of slowness that do not account for what ranks lost to a slow one, as measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.time_breakdown import time_breakdowns
from hanglab.analyzer.verdict import Status
from hanglab.analyzer.wording import name_ranks
from hanglab.harness.report.explanation.parts import Exclusion
from hanglab.harness.report.explanation.subject import Subject
from hanglab.recorder.slowness.job_window import TimeBreakdown

#: A cause that accounts for less than this part of the loss is excluded: a detector names one that
#: accounts for most of it.
_SMALL_PART = 0.2

_Part = Callable[[TimeBreakdown], float | None]
#: Of each cause the time that it would show in, and words for that.
_MEASURED: tuple[tuple[str, _Part, str], ...] = (
    ("slow_input", lambda spent: spent.input_ns, "waited for its data loaders"),
    ("gc_pause", lambda spent: spent.collecting_ns, "collected garbage"),
    ("slow_host", lambda spent: spent.waited_ns, "waited for a processor"),
    ("slow_compute", lambda spent: spent.work_ns, "used a processor for work of its own"),
)


def slow_exclusions(subject: Subject, facts: CaseFacts) -> Iterable[Exclusion]:
    """Of a slow job in which ranks wait for others: what the late ones do no more of."""
    effect = subject.verdict.effect
    if subject.verdict.status is not Status.SLOW or effect is None or not subject.waiting:
        return
    found = arrivals(facts)
    if found is None or not found.span_ns:
        return
    spent = time_breakdowns(facts, found)
    culprits = [spent[rank] for rank in subject.culprits if rank in spent]
    peers = [spent[rank] for rank in subject.waiting if rank in spent]
    if not culprits or not peers or len(culprits) < len(subject.culprits):
        return
    who = name_ranks(subject.culprits)
    for cause, part, words in _MEASURED:
        known = [part(one) for one in (*culprits, *peers)]
        shares = [ns / found.span_ns for ns in known if ns is not None]
        if len(shares) < len(known):
            continue
        own, others = max(shares[: len(culprits)]), shares[len(culprits) :]
        if own - median(others) < _SMALL_PART * effect.share_of_step:
            yield Exclusion(
                (cause,), f"{who} {words} {own:.0%} of the time, {_peers(subject)} {_span(others)}"
            )


def _peers(subject: Subject) -> str:
    return "its peer" if len(subject.waiting) == 1 else "its peers"


def _span(shares: list[float]) -> str:
    least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return least if least == most else f"{least} to {most}"
