"""Ranks that came to their end well while their peers still had operations to do with them."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.collateral_exits import ended_before_failures, failures
from hanglab.analyzer.facts.further_rounds import further_rounds, more_rounds
from hanglab.analyzer.facts.loops import classify_left_loop
from hanglab.analyzer.facts.program_ends import (
    ENDED_ITSELF,
    describe_program_end,
    ending_call,
)
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import INFERRED
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.analyzer.wording import name_line, name_ranks
from hanglab.recorder.case.user_code import MODULE


def _one_too_many(facts: CaseFacts, culprits: list[int], finished: list[int]) -> Proposal:
    """Most ranks came to their end together; the few left over issued operations of their own."""
    first = facts.ranks[culprits[0]]
    location = first.location(first.user_frames[0]) if first.user_frames else None
    open_calls = facts.graph.unfinished.get(first.rank, ())
    more = further_rounds(facts, culprits, finished)
    summary = (
        f"{name_ranks(culprits).capitalize()} issued more operations than "
        f"{name_ranks(finished)}, which had come to the end of the program."
    )
    return propose(
        facts,
        Cause.COLLECTIVE_MISMATCH if more is None else Cause.UNEVEN_INPUTS,
        culprits,
        failure_on_record=True,
        confidence=INFERRED if more is None else more.strength,
        summary=summary if more is None else more_rounds(culprits, finished, more),
        evidence=[
            Evidence("flight_recorder", rank, "entered more operations than most of its peers")
            for rank in culprits
        ],
        location=location,
        collective=collective_ref(open_calls[0]) if open_calls else None,
    )


def _left_at_once(facts: CaseFacts, ranks: list[int]) -> bool:
    """True if all of them ended themselves where a program does not come to its end.

    By ``os._exit``, or from within a function: ``sys.exit(main())`` is the end of most scripts.
    """
    calls = [ending_call(facts.ranks[rank]) for rank in ranks]
    return all(
        call is not None
        and (call.how == "os._exit" or (call.frame is not None and call.frame.function != MODULE))
        for call in calls
    )


def _left(facts: CaseFacts, rank: int) -> str:
    by, location = describe_program_end(facts.ranks[rank])
    return f", left{by}{name_line(location)}" if by else ""


def _owed_message(facts: CaseFacts, rank: int) -> Call | None:
    """The message that a peer waits in for a rank which has nothing open itself."""
    sink = facts.sink(rank)
    if sink is None or not sink.outside or sink.awaited.seq is not None:
        return None
    waits = (wait.call for wait in facts.graph.waits if rank in wait.on)
    return next((call for call in waits if call.seq is None), None)


@detector
def early_finish(facts: CaseFacts) -> Iterator[Proposal]:
    """A rank that ended well while its peers still had operations to do with it."""
    found = failures(facts)
    if any(not failure.consequence for failure in found):
        return
    failed = [failure.view.rank for failure in found if failure.view.failed]
    done = [v for v in facts.ranks.values() if v.ended is not None and not v.failed]
    peers_left = failed or (facts.others(*(v.rank for v in done)) if facts.stuck else [])
    if not peers_left:
        return
    early = [
        v.rank
        for v in done
        if (facts.operations_behind(v.rank) > 0 or _owed_message(facts, v.rank) is not None)
        and ended_before_failures(v, found)
    ]
    if not early:
        return
    if len(early) > len(peers_left):
        yield _one_too_many(facts, sorted(peers_left), early)
        return
    owed = _owed_message(facts, early[0])
    cause, confidence, detail, alternatives = classify_left_loop(facts, early[0])
    if owed is not None and not facts.operations_behind(early[0]):
        # Messages have no numbers by which it is behind.
        cause, confidence = Cause.P2P_UNMATCHED, INFERRED
        detail = f"; it owed the other half of rank {owed.rank}'s {name_call(owed)}"
        alternatives = []
    by, location = describe_program_end(facts.ranks[early[0]])
    words = f"; rank {early[0]} left{by}" if by else ""
    yield propose(
        facts,
        cause,
        early,
        failure_on_record=True,
        confidence=confidence,
        summary=f"{name_ranks(early).capitalize()} came to the end of the program after fewer "
        f"operations than its peers, which still needed it{words}{name_line(location)}.",
        evidence=[
            Evidence("exit", r, "exited with code 0 before its peers" + _left(facts, r) + detail)
            for r in early
        ],
        location=location,
        advice=f"{ENDED_ITSELF} {cause.advice}" if _left_at_once(facts, early) else None,
        alternatives=alternatives,
    )
