"""Findings about synchronization that the dumps alone prove, and the questions they leave open."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.causes.synchronization.cycles import (
    added_findings,
    cycle_findings,
    ended_findings,
    unmatched_findings,
)
from hanglab.analyzer.causes.synchronization.departures import departure_findings
from hanglab.analyzer.causes.synchronization.divergence import (
    divergence_findings,
    undecided_divergence,
    undecided_finding,
)
from hanglab.analyzer.causes.synchronization.group_names import group_name_findings
from hanglab.analyzer.causes.synchronization.lone_steps import lone_step_findings
from hanglab.analyzer.causes.synchronization.messages import message_findings
from hanglab.analyzer.causes.synchronization.missing_rank import missing_findings, unexplained_sinks
from hanglab.analyzer.causes.synchronization.uneven_exchange import uneven_exchange_findings
from hanglab.analyzer.facts.call_wording import SOURCE, name_call
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.verdict import Evidence, Finding, Status
from hanglab.analyzer.wording import break_off, name_needs, name_ranks


def synchronization_findings(graph: WaitForGraph) -> list[Finding]:
    """Findings that the dumps prove, gravest first; [] for a healthy or an undecidable graph."""
    names = group_name_findings(graph)
    # Whoever has another name for a group has not ended what the others are in.
    exchange = [] if names else uneven_exchange_findings(graph)
    findings = [
        *divergence_findings(graph),
        *names,
        *message_findings(graph),
        *departure_findings(graph),
        *cycle_findings(graph),
        *added_findings(graph),
        *ended_findings(graph),
        *unmatched_findings(graph),
        *(exchange or missing_findings(graph)),
    ]
    return findings or lone_step_findings(graph)


def _wait_for_each_other(graph: WaitForGraph, ranks: Sequence[int]) -> bool:
    """True if each of several ranks is seen to wait, and for nobody but others of them."""
    awaited: dict[int, set[int]] = {}
    for wait in graph.waits:
        awaited.setdefault(wait.call.rank, set()).update(wait.on)
    return len(ranks) > 1 and all(
        rank in awaited and awaited[rank] and awaited[rank] <= set(ranks) for rank in ranks
    )


def open_finding(graph: WaitForGraph) -> Finding | None:
    """An inconclusive finding where ranks wait and nothing proves for whom; else None."""
    if synchronization_findings(graph):
        return None
    divergence = undecided_divergence(graph)
    if divergence is not None:
        return undecided_finding(graph, divergence)
    if not graph.waits:
        return None
    unsure = {sink.rank for sink in graph.sinks if sink.unknown or sink.hidden}
    unknown = sorted(unsure | set(graph.open))
    known = [sink.rank for sink in unexplained_sinks(graph) if not sink.hidden]
    waiting = sorted({wait.call.rank for wait in graph.waits})
    first = graph.waits[0].call
    if _wait_for_each_other(graph, unknown):
        words = f"{name_ranks(unknown)} wait for each other, and who is out of turn cannot be told"
    elif unknown:
        words = f"whether {name_ranks(unknown)} came cannot be told without more evidence"
    elif known:
        words = (
            f"{name_ranks(known)} have not entered it, and so few wait for so many that who of "
            "them is wrong is open"
            if len(known) > 1
            else f"{name_ranks(known)} has not entered it, but others have nothing open "
            "either and wait for nobody, so who is wrong is open"
        )
    elif graph.stalled:
        words = "everybody has entered it and nobody finished"
    elif on := sorted({r for wait in graph.waits if wait.call is first for r in wait.on}):
        lost = sorted({*on} & {*graph.missing})
        verb = "waits itself" if len(on) == 1 else "wait themselves"
        words = f"it waits for {name_ranks(on)}, which {verb}; where the ranks parted no dump shows"
        if lost:
            words = f"it waits for {name_ranks(lost)}, which left no dump"
    elif lost := sorted({*first.group.members} & {*graph.missing}):
        words = f"whether {name_ranks(lost)} of its group came, which left no dump, cannot be told"
    else:
        words = "the dumps do not show what it waits for"
    if graph.broken_off:
        words += f"; {break_off(sorted(graph.broken_off))}"
    evidence = [
        Evidence(SOURCE, wait.call.rank, f"waits in {name_call(wait.call)}")
        for wait in graph.waits[:16]
    ]
    evidence += [Evidence(SOURCE, rank, "is certainly awaited") for rank in known[:16]]
    return Finding(
        status=Status.INCONCLUSIVE,
        victims=waiting,
        confidence=0.0,
        summary=(
            f"{name_ranks(waiting).capitalize()} {_waits(waiting)} {name_call(first)}; {words}."
        ),
        evidence=evidence,
        advice="Get " + ", ".join(name_needs(graph.needs)) + "." if graph.needs else "",
    )


def _waits(ranks: list[int]) -> str:
    return "waits in" if len(ranks) == 1 else "wait, the first in"
