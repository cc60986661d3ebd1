"""Ranks that ended or raised: the first of them by its reason, the others as its victims."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.collateral_exits import ended_by_others, mark_collateral
from hanglab.analyzer.facts.failures import (
    Failure,
    consequence_words,
    failure_of,
    from_text,
    printed_failure,
)
from hanglab.analyzer.facts.loader_waits import queue_words
from hanglab.analyzer.facts.program_ends import ENDED_ITSELF, ending_call
from hanglab.analyzer.facts.swallowed_exceptions import swallowed_exception
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.analyzer.wording import name_line, name_ranks


def _swallowed(facts: CaseFacts, view: RankView) -> Failure | None:
    """An exception that the rank printed and survived, if it is why its peers wait."""
    one = swallowed_exception(facts, view)
    if one is None:
        return None
    failure = from_text(
        view, one.type, one.message, list(one.frames), one.at_ns, "handled", one.confidence
    )
    return None if failure.consequence else failure


_SAID = {
    Cause.EXCEPTION: "raised an exception",
    Cause.CRASH: "crashed",
    Cause.LOADER_WORKER_DIED: "lost a data loader worker",
    Cause.SHM_EXHAUSTED: "ran out of shared memory",
    Cause.DISK_FULL: "ran out of disk space",
    Cause.FD_EXHAUSTED: "ran out of file descriptors",
    Cause.PIDS_EXHAUSTED: "could not start another process or thread",
    Cause.GPU_OOM: "ran out of GPU memory",
    Cause.GPU_FAULT: "met a fault of its GPU",
    Cause.RENDEZVOUS: "could not join the job",
    Cause.TEARDOWN: "failed at its end",
}
_KILLED = (
    "Such a signal comes from outside the program, unless it sends it itself (os.kill): look for "
    "the kernel's want of memory (dmesg -T), for limits of its container or scheduler, and for "
    "whoever may end processes there."
)


def _advice(failures: list[Failure]) -> str | None:
    """Advice for ranks that ended by no error of theirs; None where the cause's own is right."""
    if all(ended_by_others(one) for one in failures):
        return _KILLED
    if all(one.source == "exit" and ending_call(one.view) is not None for one in failures):
        return ENDED_ITSELF
    return None


def _effect_on_peers(facts: CaseFacts, ranks: list[int]) -> str:
    """The end of a summary: nothing where there are no peers but those that it tells of."""
    if not {*facts.ranks, *facts.inputs.missing_ranks} - set(ranks):
        return ""
    whose, whom, was = ("its", "it", "was") if len(ranks) == 1 else ("their", "them", "were")
    if facts.stuck or (not facts.case and facts.graph.waits):
        return f"; {whose} peers wait for {whom}"
    return f"; {whose} peers failed because {'it' if len(ranks) == 1 else 'they'} {was} gone"


@detector
def ends_and_exceptions(facts: CaseFacts) -> Iterator[Proposal]:
    """One proposal per cause; victims' own errors are counted, not accused."""
    own: dict[Cause, list[Failure]] = {}
    everybody = [
        failure_of(view)
        or _swallowed(facts, view)
        or (printed_failure(view) if facts.stuck or not facts.case else None)
        for view in facts.ranks.values()
    ]
    found = mark_collateral(facts, [failure for failure in everybody if failure is not None])
    felt = [failure for failure in found if failure.consequence]
    for failure in found:
        if not failure.consequence:
            own.setdefault(failure.cause, []).append(failure)
    consequences = [failure.view.rank for failure in felt]
    for cause, mine in own.items():
        mine.sort(key=lambda t: (t.at_ns is None, t.at_ns, t.view.rank))
        ranks = [t.view.rank for t in mine]
        first = mine[0]
        location = first.view.location(first.frame) if first.frame else None
        evidence = [
            Evidence(
                t.source,
                t.view.rank,
                t.detail + name_line(t.view.location(t.frame) if t.frame else None),
            )
            for t in mine
        ]
        if cause is Cause.LOADER_WORKER_DIED:
            evidence += [
                Evidence("progress", t.view.rank, f"its loader{words}")
                for t in mine
                if (words := queue_words(t.view))
            ]
        if consequences:
            evidence.append(Evidence("exceptions", None, consequence_words(consequences)))
        yield propose(
            facts,
            cause,
            ranks,
            failure_on_record=True,
            confidence=max(t.confidence for t in mine),
            summary=f"{name_ranks(ranks).capitalize()} {_SAID[cause]}: {first.detail}"
            f"{name_line(location)}{_effect_on_peers(facts, ranks)}.",
            evidence=evidence,
            location=location,
            advice=_advice(mine),
        )
