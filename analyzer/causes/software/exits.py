"""Ranks that ended or raised: the first of them by its reason, the others as its victims."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.collateral_exits import failures, left_before, mark_collateral
from hanglab.analyzer.facts.departure_calls import describe_departure
from hanglab.analyzer.facts.failures import Failure, failure_of, from_text
from hanglab.analyzer.facts.loader_waits import queue_words
from hanglab.analyzer.facts.loops import classify_left_loop
from hanglab.analyzer.facts.swallowed_exceptions import swallowed_exception
from hanglab.analyzer.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status


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
    Cause.RENDEZVOUS: "could not join the job",
    Cause.TEARDOWN: "came to grief at its end",
}


def _what_it_did_to_peers(facts: CaseFacts, ranks: list[int]) -> str:
    """The end of a summary: nothing where there are no peers but those that it tells of."""
    if not {*facts.ranks, *facts.inputs.missing_ranks} - set(ranks):
        return ""
    whose, whom, was = ("its", "it", "was") if len(ranks) == 1 else ("their", "them", "were")
    if facts.stuck:
        return f"; {whose} peers wait for {whom}"
    return f"; {whose} peers failed because {'it' if len(ranks) == 1 else 'they'} {was} gone"


def ends_and_exceptions(facts: CaseFacts) -> Iterator[Proposal]:
    """One proposal per cause; victims' own errors are counted, not accused."""
    own: dict[Cause, list[Failure]] = {}
    everybody = [failure_of(view) or _swallowed(facts, view) for view in facts.ranks.values()]
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
            evidence.append(
                Evidence(
                    "exceptions",
                    None,
                    f"{name_ranks(consequences)} lost the connection, timed out or were ended: "
                    "a consequence",
                )
            )
        yield propose(
            facts,
            Order.EXIT,
            cause,
            ranks,
            status=Status.HUNG if facts.stuck else Status.FAILED,
            confidence=max(t.confidence for t in mine),
            summary=f"{name_ranks(ranks).capitalize()} {_SAID[cause]}: {first.detail}"
            f"{name_line(location)}{_what_it_did_to_peers(facts, ranks)}.",
            evidence=evidence,
            location=location,
            excludes=consequences,
        )


def _one_too_many(facts: CaseFacts, culprits: list[int], finished: list[int]) -> Proposal:
    """Most ranks came to their end together; the few left over issued operations of their own."""
    first = facts.ranks[culprits[0]]
    location = first.location(first.user_frames[0]) if first.user_frames else None
    return propose(
        facts,
        Order.EXIT,
        Cause.COLLECTIVE_MISMATCH,
        culprits,
        status=Status.HUNG if facts.stuck else Status.FAILED,
        confidence=0.85,
        summary=f"{name_ranks(culprits).capitalize()} issued more operations than "
        f"{name_ranks(finished)}, which had come to the end of the program.",
        evidence=[
            Evidence("flight_recorder", rank, "entered more operations than most of its peers")
            for rank in culprits
        ],
        location=location,
    )


def _left(facts: CaseFacts, rank: int) -> str:
    by, location = describe_departure(facts.ranks[rank])
    return f", left{by}{name_line(location)}" if by else ""


def early_finish(facts: CaseFacts) -> Iterator[Proposal]:
    """A rank that ended well while its peers still had operations to do with it."""
    found = failures(facts)
    if any(not failure.consequence for failure in found):
        return
    failed = [failure.view.rank for failure in found if failure.view.failed]
    done = [v for v in facts.ranks.values() if v.ended is not None and not v.failed]
    failed_in_consequence = failed or (facts.others(*(v.rank for v in done)) if facts.stuck else [])
    if not failed_in_consequence:
        return
    early = [v.rank for v in done if facts.fell_short(v.rank) > 0 and left_before(v, found)]
    if not early:
        return
    if len(early) > len(failed_in_consequence):
        yield _one_too_many(facts, sorted(failed_in_consequence), early)
        return
    cause, confidence, detail, alternatives = classify_left_loop(facts, early[0])
    by, location = describe_departure(facts.ranks[early[0]])
    words = f"; rank {early[0]} left{by}" if by else ""
    yield propose(
        facts,
        Order.EXIT,
        cause,
        early,
        status=Status.HUNG if facts.stuck else Status.FAILED,
        confidence=confidence,
        summary=f"{name_ranks(early).capitalize()} came to the end of the program after fewer "
        f"operations than its peers, which still needed it{words}{name_line(location)}.",
        evidence=[
            Evidence("exit", r, "exited with code 0 before its peers" + _left(facts, r) + detail)
            for r in early
        ],
        location=location,
        excludes=failed,
        alternatives=alternatives,
    )
