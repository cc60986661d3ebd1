"""Ranks that ended or raised: the first of them by its reason, the others as its victims."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.collateral_exits import left_before, mark_cleared, troubles
from hanglab.analyzer.facts.departure_calls import leaving
from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.evidence import RankView
from hanglab.analyzer.facts.failures import Trouble, from_text, troubles_of
from hanglab.analyzer.facts.loader_waits import queue_words
from hanglab.analyzer.facts.loops import label_left_loop
from hanglab.analyzer.facts.swallowed_exceptions import swallowed
from hanglab.analyzer.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Evidence, Status


def _swallowed(known: Known, view: RankView) -> Trouble | None:
    """An exception that the rank printed and survived, if it is why its peers wait."""
    one = swallowed(known, view)
    if one is None:
        return None
    trouble = from_text(
        view, one.type, one.message, list(one.frames), one.at_ns, "handled", one.confidence
    )
    return None if trouble.consequence else trouble


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


def _what_it_did_to_peers(known: Known, ranks: list[int]) -> str:
    """The end of a summary: nothing where there are no peers but those that it tells of."""
    if not {*known.ranks, *known.inputs.missing_ranks} - set(ranks):
        return ""
    whose, whom, was = ("its", "it", "was") if len(ranks) == 1 else ("their", "them", "were")
    if known.stuck:
        return f"; {whose} peers wait for {whom}"
    return f"; {whose} peers failed because {'it' if len(ranks) == 1 else 'they'} {was} gone"


def ends_and_exceptions(known: Known) -> Iterator[Proposal]:
    """One proposal per cause; victims' own errors are counted, not accused."""
    own: dict[Cause, list[Trouble]] = {}
    everybody = [troubles_of(view) or _swallowed(known, view) for view in known.ranks.values()]
    found = mark_cleared(known, [trouble for trouble in everybody if trouble is not None])
    felt = [trouble for trouble in found if trouble.consequence]
    for trouble in found:
        if not trouble.consequence:
            own.setdefault(trouble.cause, []).append(trouble)
    consequences = [trouble.view.rank for trouble in felt]
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
            known,
            Order.EXIT,
            cause,
            ranks,
            status=Status.HUNG if known.stuck else Status.FAILED,
            confidence=max(t.confidence for t in mine),
            summary=f"{name_ranks(ranks).capitalize()} {_SAID[cause]}: {first.detail}"
            f"{name_line(location)}{_what_it_did_to_peers(known, ranks)}.",
            evidence=evidence,
            location=location,
            excludes=consequences,
        )


def _one_too_many(known: Known, culprits: list[int], finished: list[int]) -> Proposal:
    """Most ranks came to their end together; the few left over issued operations of their own."""
    first = known.ranks[culprits[0]]
    location = first.location(first.user_frames[0]) if first.user_frames else None
    return propose(
        known,
        Order.EXIT,
        Cause.COLLECTIVE_MISMATCH,
        culprits,
        status=Status.HUNG if known.stuck else Status.FAILED,
        confidence=0.85,
        summary=f"{name_ranks(culprits).capitalize()} issued more operations than "
        f"{name_ranks(finished)}, which had come to the end of the program.",
        evidence=[
            Evidence("flight_recorder", rank, "entered more operations than most of its peers")
            for rank in culprits
        ],
        location=location,
    )


def _left(known: Known, rank: int) -> str:
    by, location = leaving(known.ranks[rank])
    return f", left{by}{name_line(location)}" if by else ""


def early_finish(known: Known) -> Iterator[Proposal]:
    """A rank that ended well while its peers still had operations to do with it."""
    found = troubles(known)
    if any(not trouble.consequence for trouble in found):
        return
    failed = [trouble.view.rank for trouble in found if trouble.view.failed]
    done = [v for v in known.ranks.values() if v.ended is not None and not v.failed]
    suffering = failed or (known.others(*(v.rank for v in done)) if known.stuck else [])
    if not suffering:
        return
    early = [v.rank for v in done if known.fell_short(v.rank) > 0 and left_before(v, found)]
    if not early:
        return
    if len(early) > len(suffering):
        yield _one_too_many(known, sorted(suffering), early)
        return
    cause, confidence, detail, alternatives = label_left_loop(known, early[0])
    by, location = leaving(known.ranks[early[0]])
    words = f"; rank {early[0]} left{by}" if by else ""
    yield propose(
        known,
        Order.EXIT,
        cause,
        early,
        status=Status.HUNG if known.stuck else Status.FAILED,
        confidence=confidence,
        summary=f"{name_ranks(early).capitalize()} came to the end of the program after fewer "
        f"operations than its peers, which still needed it{words}{name_line(location)}.",
        evidence=[
            Evidence("exit", r, "exited with code 0 before its peers" + _left(known, r) + detail)
            for r in early
        ],
        location=location,
        excludes=failed,
        alternatives=alternatives,
    )
