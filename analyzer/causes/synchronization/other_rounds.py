"""Differences of operations that come of other numbers of rounds of a loop than the peers'."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hanglab.analyzer.facts.calls_per_batch import left_out_for_no_batch
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.further_rounds import (
    at_the_end_of_input,
    further_rounds,
    more_rounds,
)
from hanglab.analyzer.facts.launches import is_blocking
from hanglab.analyzer.facts.loop_decisions import line_that_may_fail, not_for_input
from hanglab.analyzer.facts.loops import left_loops, others_behind, steps_compared
from hanglab.analyzer.facts.source_loops import is_behind_loop_of
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.matching.signatures import call_site
from hanglab.analyzer.proposal import as_cause
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED, PLAUSIBLE
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Location
from hanglab.analyzer.wording import BEHIND_PEERS, name_ranks

#: Differences after which a rank may be found to have left its peers' loop.
_MAY_BE_UNEVEN = frozenset({Cause.COLLECTIVE_MISMATCH, Cause.SKIPPED_COLLECTIVE})


def in_other_rounds(facts: CaseFacts, finding: Finding, difference: Divergence | None) -> Finding:
    """The finding as what it is if culprits left a loop, or are alone in one."""
    if finding.cause not in _MAY_BE_UNEVEN:
        return finding
    gone = _gone_on(facts, difference, [r for r in finding.culprits if r in facts.ranks])
    if len(gone) == 1:
        return _past_the_loop(facts, finding, gone[0])
    if gone and difference is not None:
        return _in_the_loop_alone(facts, finding, difference, gone)
    if gone:
        return finding
    return _at_the_end_of_input(facts, _ended_sooner(facts, finding))


def left_by_one(facts: CaseFacts, finding: Finding, difference: Divergence) -> Finding | None:
    """A difference that missing votes leave undecided, where one rank alone has left a loop."""
    if finding.cause not in _MAY_BE_UNEVEN:
        return None
    ranks = sorted({*finding.culprits, *difference.unknown_calls} & facts.ranks.keys())
    gone = _gone_on(facts, difference, ranks)
    if len(gone) != 1 or gone[0] not in finding.culprits:
        return None
    told = _past_the_loop(facts, finding, gone[0])
    return None if told is finding else told


def in_further_rounds(facts: CaseFacts, finding: Finding, peers: Sequence[int]) -> Finding:
    """The difference as uneven inputs, where the culprits alone have rounds left to do."""
    more = further_rounds(facts, finding.culprits, peers)
    if finding.cause is not Cause.COLLECTIVE_MISMATCH or more is None:
        return finding
    return as_cause(
        finding,
        Cause.UNEVEN_INPUTS,
        confidence=min(finding.confidence, more.strength),
        summary=more_rounds(finding.culprits, peers, more),
        evidence=[
            *(
                Evidence("stack", rank, f"in a round that its peers do not have ({more.words})")
                for rank in finding.culprits
            ),
            *finding.evidence,
        ],
    )


def _gone_on(facts: CaseFacts, difference: Divergence | None, ranks: Sequence[int]) -> list[int]:
    """Those of some ranks that have left a loop which peers are in, or that did so with them.

    Who made the same call from behind the loop may be in its next round, or that of a loop around.
    """
    calls = difference.calls if difference is not None else {}
    behind = {rank for rank in ranks if left_loops(facts, rank)}
    made = {_place(calls[rank]) for rank in behind & calls.keys()} - {None}
    return [
        rank for rank in ranks if rank in behind or (rank in calls and _place(calls[rank]) in made)
    ]


def _place(call: Call) -> tuple[str, Frame] | None:
    """The operation of a call and the line that it was made from."""
    site = call_site(call.stack)
    return None if site is None else (call.op, site)


def _in_the_loop_alone(
    facts: CaseFacts, finding: Finding, difference: Divergence, gone: Sequence[int]
) -> Finding:
    """The difference as further rounds of the few that are in a loop which most have left."""
    stayed = [rank for rank in finding.culprits if rank not in gone]
    behind = [rank for rank in gone if left_loops(facts, rank)]
    if difference.deviating or not 0 < 2 * len(stayed) < len(difference.calls):
        return finding
    few = msgspec.structs.replace(
        finding,
        culprits=stayed,
        victims=sorted({*finding.victims, *gone}),
        location=_current_line(facts, stayed[0]),
    )
    told = in_further_rounds(facts, few, behind)
    return finding if told is few else told


def _past_the_loop(facts: CaseFacts, finding: Finding, rank: int) -> Finding:
    """The root of a difference, where the rank has left the loop that its peers are in."""
    loops = left_loops(facts, rank)
    if not loops:
        return finding
    compared = steps_compared(facts, rank, loops)
    more = compared is not None and compared[0] > 0
    if more and not _do_not_run_ahead(facts, finding):
        return finding
    if compared is None and finding.cause is Cause.SKIPPED_COLLECTIVE:
        return finding  # its later operations prove more than a place behind the loop
    if compared is None and others_behind(facts, rank, loops):
        return finding  # that it has left the loop is no difference of its own
    # Rarely does a rank whose steps nobody counts come to the end of them without one operation.
    fewer = compared is None or compared[0] < 0
    told = not_for_input(facts, rank, loops) if fewer else ""
    # But where the loop handles exceptions of what calls them, it may have gone on without.
    failing = line_that_may_fail(facts, rank, loops) if compared is None and not told else None
    if failing is not None:
        told = f"line {failing} may fail there, and the loop goes on"
    cause = Cause.UNEVEN_INPUTS if fewer and not told else Cause.SKIPPED_COLLECTIVE
    many = "more steps and no more" if more else "as many steps but fewer"
    done = "after fewer steps" if fewer and not told else f"after {many} operations"
    words = compared[1] if compared is not None else "by the operations that it did there"
    when = " after as many steps" if compared is not None and not compared[0] else ""
    if told:
        done = "after fewer rounds or operations"
        done += ", and not for want of input" if failing is None else ""
        words += f"; {told}"
    return as_cause(
        finding,
        cause,
        culprits=[rank],
        victims=sorted({*finding.victims, *finding.culprits} - {rank}),
        location=_current_line(facts, rank) or finding.location,
        confidence=max(finding.confidence, CONCLUDED)
        if compared is not None
        else PLAUSIBLE
        if failing is None
        else CANDIDATES,
        summary=f"Rank {rank} has left the loop that its peers are in, {done} ({words}); "
        "its next operation meets the wrong one of theirs.",
        evidence=[
            Evidence("stack", rank, f"{BEHIND_PEERS}{when}; {words}"),
            *finding.evidence,
        ],
    )


def _ended_sooner(facts: CaseFacts, finding: Finding) -> Finding:
    """The root of a difference of one who is past all of it, by the steps or batches of calls.

    The rank called behind the loop in which its peers called, and they came there after more steps;
    or it made all calls of that loop for the batches that it had.
    """
    for divergence in facts.graph.divergences:
        ranks = divergence.deviating
        if list(ranks) != finding.culprits or len(ranks) != 1 or ranks[0] not in divergence.calls:
            continue
        call = divergence.calls[ranks[0]]
        peer = next((one for rank, one in divergence.calls.items() if rank not in ranks), None)
        if peer is None or not is_behind_loop_of(facts, call.stack, peer.stack):
            continue
        how = ""
        if divergence.new_call_in is not None:
            mine, theirs = divergence.new_call_in
            how = f"in step {mine} of the job, they in step {theirs}" if mine < theirs else ""
        elif left_out_for_no_batch(facts, ranks[0], peer):
            how = "after fewer batches, for each of which it made its calls"
        if how:
            return as_cause(
                finding,
                Cause.UNEVEN_INPUTS,
                summary=f"Rank {ranks[0]} left the loop in which its peers went on, {how}; its "
                "next operation meets the wrong one of theirs.",
            )
    return finding


def _at_the_end_of_input(facts: CaseFacts, finding: Finding) -> Finding:
    """The difference as uneven inputs, where the culprits alone handle the end of an iterator."""
    ended = [rank for rank, view in facts.ranks.items() if at_the_end_of_input(view)]
    if finding.cause not in _MAY_BE_UNEVEN or not ended or ended != finding.culprits:
        return finding
    return as_cause(
        finding,
        Cause.UNEVEN_INPUTS,
        confidence=min(finding.confidence, CONCLUDED),
        summary=f"{name_ranks(ended).capitalize()} came to the end of an iterator, which peers did "
        f"not. {finding.summary}",
        evidence=[
            *(Evidence("exceptions", rank, "handles the end of an iterator") for rank in ended),
            *finding.evidence,
        ],
    )


def _current_line(facts: CaseFacts, rank: int) -> Location | None:
    view = facts.ranks[rank]
    frame = next(iter(view.code.user_frames(view.program_frames)), None)
    return view.location(frame) if frame is not None else None


def _do_not_run_ahead(facts: CaseFacts, finding: Finding) -> bool:
    """True if no host goes on before its operations: who is a step further has done its own."""
    at = finding.collective
    return at is not None and all(is_blocking(v, at.group_id) for v in facts.ranks.values())
