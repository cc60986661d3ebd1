"""Causes that it is not and what excludes them, and causes that stay open."""

from __future__ import annotations

from collections.abc import Iterable

from hanglab.analyzer.catalogue import Stage
from hanglab.analyzer.decision import FallReason
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.verdict import Status
from hanglab.analyzer.wording import name_ranks
from hanglab.harness.report.explanation.cause_texts import text_of
from hanglab.harness.report.explanation.headlines import duration
from hanglab.harness.report.explanation.parts import Exclusion, OpenAlternative
from hanglab.harness.report.explanation.slow_exclusions import slow_exclusions
from hanglab.harness.report.explanation.subject import Subject

#: Lines that are shown.
MOST_SHOWN = 6
_ENDS = ("exception", "crash", "oom_killed")
_SLOW = ("slow_compute", "slow_input", "slow_host", "imbalance")


def exclusions(subject: Subject) -> tuple[Exclusion, ...]:
    """Causes that the evidence excludes: first those that this one is mistaken for."""
    cause, facts = subject.verdict.cause, subject.facts
    if cause is None or facts is None or subject.verdict.status is Status.HEALTHY:
        return ()
    found = [*_fallen(subject), *_by_facts(subject, facts)]
    confused = set(text_of(cause.value).mistaken_for)
    told: set[str] = {
        cause.value,
        *(one.cause.value for one in subject.verdict.findings if one.cause),
    }
    told |= {one.cause.value for one in subject.verdict.alternatives}
    kept = []
    for one in sorted(found, key=lambda e: not confused.intersection(e.causes)):
        causes = tuple(name for name in one.causes if name not in told)
        if causes:
            told.update(causes)
            kept.append(Exclusion(causes, one.why))
    return tuple(kept[:MOST_SHOWN])


def alternatives(subject: Subject) -> tuple[OpenAlternative, ...]:
    """Causes that stay possible, each with what would prove it."""
    wanted = "; ".join(subject.verdict.inputs.would_decide)
    return tuple(
        OpenAlternative(
            one.cause.value,
            tuple(one.culprits),
            one.confidence,
            wanted or _difference(subject, one.cause.value),
        )
        for one in subject.verdict.alternatives
    )


def _difference(subject: Subject, other: str) -> str:
    """Words for what tells the other cause from the verdict's own."""
    cause = subject.verdict.cause
    ours = text_of(cause.value if cause else None).mistaken_for.get(other)
    proof = text_of(other).proof.split(". ")[0].removesuffix(".")
    return ours or (f"what would prove it: {proof[0].lower()}{proof[1:]}" if proof else "")


_WORDS = {
    FallReason.EXPLAINED: "what {who} met follows from what {culprits} did",
    FallReason.SYMPTOM: "{who} {wait} for {culprits} in turn",
    FallReason.FOR_CULPRITS_ALONE: "nobody but {culprits} waits for {who}",
}


def _fallen(subject: Subject) -> Iterable[Exclusion]:
    """Proposals of the analyzer that the decision dropped."""
    culprits = subject.culprits
    for one in subject.fallen:
        finding, words = one.proposal.finding, _WORDS.get(one.reason)
        if finding.cause is None or words is None or not culprits:
            continue
        if not finding.culprits or set(finding.culprits) & set(culprits):
            continue
        wait = "waits" if len(finding.culprits) == 1 else "wait"
        why = words.format(
            who=name_ranks(finding.culprits), culprits=name_ranks(culprits), wait=wait
        )
        yield Exclusion((finding.cause.value,), why)


def _by_facts(subject: Subject, facts: CaseFacts) -> Iterable[Exclusion]:
    """Causes of stages that the evidence shows not to be reached."""
    stage = _stage(subject)
    if facts.case and facts.ranks:
        yield from slow_exclusions(subject, facts)
        yield from _by_processes(subject, facts, stage)
    graph = facts.graph
    if graph.ranks and stage is not Stage.DIVERGENCE and not graph.divergences:
        if not graph.mismatched_messages and not graph.name_conflicts and graph.groups:
            yield Exclusion(
                ("collective_mismatch", "size_mismatch", "dtype_mismatch"),
                "no two ranks made different calls under one number, as far as their buffers go",
            )
    in_ring = graph.cycles or graph.unmatched or _wait_in_ring(graph)
    if graph.waits and not in_ring and stage is not Stage.CYCLE:
        yield Exclusion(("group_order", "p2p_deadlock"), "no ranks wait for each other in a ring")
    if subject.verdict.status is Status.HUNG and graph.sinks and not graph.stalled:
        away = sorted({s.rank for s in graph.sinks if s.outside and s.rank in subject.culprits})
        if away:
            has = "has" if len(away) == 1 else "have"
            yield Exclusion(
                ("partition", "fabric_stalled"),
                f"{name_ranks(away)} {has} not entered the operation of those who wait",
            )


def _wait_in_ring(graph: WaitForGraph) -> bool:
    """True if some rank waits, by way of others, for itself, whatever holds them up."""
    waits: dict[int, set[int]] = {}
    for wait in graph.waits:
        waits.setdefault(wait.call.rank, set()).update(wait.on)
    free = {rank for on in waits.values() for rank in on} - waits.keys()
    # Whoever waits for none but those who are free goes on once they do.
    while freed := {rank for rank, on in waits.items() if on <= free} - free:
        free |= freed
    return not waits.keys() <= free


def _stage(subject: Subject) -> Stage | None:
    cause = subject.verdict.cause
    return cause.stage if cause is not None else None


def _by_processes(subject: Subject, facts: CaseFacts, stage: Stage | None) -> Iterable[Exclusion]:
    views = facts.ranks
    lived = all(v.ended is None and not v.exceptions and not v.handled for v in views.values())
    if lived and stage is not Stage.EXIT:
        yield Exclusion(
            _ENDS,
            "no rank had ended, left an exception uncaught or printed one with its traceback, by "
            "the capture",
        )
    states = {view.state for view in views.values()}
    if states and states <= {"R", "S"} and stage is not Stage.PROCESS:
        yield Exclusion(
            ("process_frozen", "io_blocked"),
            "every rank's process ran or slept at the capture (states "
            f"{' and '.join(sorted(states))})"
            if len(states) > 1
            else f"every rank's process was in state {min(states)} at the capture",
        )
    if subject.verdict.status is Status.HUNG and facts.stuck and facts.job and facts.job.trigger:
        quiet = facts.job.trigger.quiet_s
        if quiet > 0:
            yield Exclusion(_SLOW, f"nothing of the job moved for {duration(quiet)}")
    yield from _by_stacks(subject, facts)


def _by_stacks(subject: Subject, facts: CaseFacts) -> Iterable[Exclusion]:
    """Causes whose place is not that of the culprits' stacks."""
    known = [facts.ranks[rank] for rank in subject.culprits if rank in facts.ranks]
    known = [view for view in known if view.captured_stack is not None]
    if not known or len(known) < len(subject.culprits) or subject.verdict.status is not Status.HUNG:
        return
    seen = {view.position.place for view in known}
    if StackPlace.UNKNOWN in seen:
        return
    places = {
        "loader_stuck": StackPlace.LOADER,
        "teardown": StackPlace.TEARDOWN,
        "group_creation": StackPlace.GROUP_CREATION,
    }
    elsewhere = tuple(cause for cause, place in places.items() if place not in seen)
    if elsewhere:
        its = "the stack" if len(known) == 1 else "the stacks"
        yield Exclusion(
            elsewhere,
            f"{its} of {name_ranks(subject.culprits)} {'shows' if len(known) == 1 else 'show'} "
            f"no function that {'it is' if len(elsewhere) == 1 else 'these are'} known by",
        )
