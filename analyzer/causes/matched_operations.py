"""Proposals from the matched operations alone: findings of the graph, in the order of decision.

In a Case they are sharpened by what a dump cannot know: the line at which a
culprit stands, and whether a rank that others wait for is explained by its
process, its stack or its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.causes.synchronization.divergence import undecided_differences
from hanglab.analyzer.causes.synchronization.other_rounds import (
    in_further_rounds,
    in_other_rounds,
    left_by_one,
)
from hanglab.analyzer.causes.synchronization.out_of_turn import alternatives, as_call_out_of_turn
from hanglab.analyzer.causes.synchronization.places_of_peers import (
    behind_peers,
    further_than_peers,
    past_its_peers,
)
from hanglab.analyzer.facts.absent_ranks import absent_ranks, classify
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.cut_links import lossy_directions
from hanglab.analyzer.facts.device_progress import unstarted_ranks
from hanglab.analyzer.facts.failures import failure_of
from hanglab.analyzer.facts.held_locks import lock_held_in_operation
from hanglab.analyzer.facts.launches import held_in_launch, is_blocking, launched_line
from hanglab.analyzer.facts.split_lists import first_disagreement
from hanglab.analyzer.graph.wait_for_graph import Sink
from hanglab.analyzer.matching.calls import Divergence
from hanglab.analyzer.proposal import Proposal, as_cause, detector
from hanglab.analyzer.strengths import ALTERNATIVE, PLAUSIBLE
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status
from hanglab.analyzer.wording import name_line

_OUTSIDE = frozenset({Cause.MISSING_RANK})
#: Causes of a rank that has left something out, as far as calls tell.
_LEFT_OUT = frozenset({Cause.SKIPPED_COLLECTIVE, Cause.P2P_UNMATCHED})


@detector
def synchronization(facts: CaseFacts) -> Iterator[Proposal]:
    for finding in synchronization_findings(facts.graph):
        cause = finding.cause
        if cause is None:
            continue
        if cause is Cause.SPLIT_MISMATCH and first_disagreement(facts) is not None:
            continue  # the lists of a Case say more than the sizes of a dump
        if cause in _OUTSIDE:
            if facts.case and not _still_unexplained(facts, finding):
                continue
        if facts.case:
            finding = _sharpen(facts, finding)
        elif cause is Cause.SIZE_MISMATCH:
            finding = as_call_out_of_turn(facts, finding)
        elif cause in _OUTSIDE:
            finding = _at_its_stack(facts, finding)
        others = alternatives(cause, finding)
        if finding.cause is Cause.UNEVEN_INPUTS and finding.confidence <= PLAUSIBLE:
            # It may as well have come to the end of as many steps without one's operation.
            others = [*others, (Cause.SKIPPED_COLLECTIVE, finding.culprits, ALTERNATIVE)]
        yield Proposal(finding=finding, alternatives=others)
    if not facts.case:
        return
    for difference, finding in undecided_differences(facts.graph):
        told = left_by_one(facts, finding, difference)
        if told is not None:
            yield Proposal(finding=told)


def _still_unexplained(facts: CaseFacts, finding: Finding) -> bool:
    """True if a rank that others wait for is not looked at by its stack anyway."""
    looked_at = set(absent_ranks(facts))
    for rank in finding.culprits:
        view = facts.ranks.get(rank)
        if rank in looked_at and view is not None and view.rank_stacks:
            return False
        failure = failure_of(view) if view is not None else None
        if failure is not None and failure.consequence:
            # Its communication failed: it was inside an operation that nobody recorded.
            return False
        outside = facts.in_no_operation(rank) or held_in_launch(facts, rank)
        if view is not None and view.ended is None and not outside:
            # Its stack contradicts its dump: it does not stand outside.
            return False
        sink = facts.sink(rank)
        if sink is not None and sink.by_exclusion and rank in unstarted_ranks(facts, sink.awaited):
            # What it launched its device has not begun: that is a cause of its own.
            return False
        if sink is not None and sink.stopped_device:
            if lossy_directions(facts) or _runs_on_the_host(facts, sink):
                # It is inside, and what it waits for gets lost on its way: not it has stopped.
                return False
    # Whoever was ended from outside need not have been late.
    return facts.stuck or any(not failure.collateral for failure in failures(facts))


def _runs_on_the_host(facts: CaseFacts, sink: Sink) -> bool:
    """True if nothing of a rank can have stopped but its process, and that runs."""
    view = facts.ranks.get(sink.rank)
    if view is None or view.ended is not None or view.state not in ("R", "S"):
        return False
    return is_blocking(view, sink.awaited.group.name)


def _sharpen(facts: CaseFacts, finding: Finding) -> Finding:
    status = Status.HUNG
    if not facts.stuck and any(v.failed for v in facts.ranks.values()):
        status = Status.FAILED
    finding = msgspec.structs.replace(finding, status=status)
    first = finding.culprits[0] if finding.culprits else None
    if first is None or first not in facts.ranks:
        return finding
    view = facts.ranks[first]
    called = finding.location
    frame = view.calling_frame(called) if called is not None else view.position.user
    launched = launched_line(facts, first) if called is not None else None
    if launched is not None and called is not None:
        # Its host has gone on: what it launched tells the place, and not where it stands.
        if called.rank != first:
            finding = msgspec.structs.replace(finding, location=launched)
    elif view.ended is None and frame is not None:
        finding = msgspec.structs.replace(finding, location=view.location(frame))
    if _by_thread_turns(facts, finding):
        return finding  # it made all calls that its peers did, wherever its threads stand
    finding = in_other_rounds(facts, finding, _difference(facts, finding))
    if finding.cause is Cause.SIZE_MISMATCH:
        finding = as_call_out_of_turn(facts, finding)
    elif finding.cause is Cause.COLLECTIVE_MISMATCH:
        finding = further_than_peers(facts, finding)
        peers = {wait.call.rank for wait in facts.graph.waits}
        finding = in_further_rounds(facts, finding, sorted(peers - {*finding.culprits}))
    elif finding.cause in _LEFT_OUT:
        finding = behind_peers(facts, finding)
        if finding.cause is Cause.P2P_UNMATCHED:
            finding = past_its_peers(facts, finding)
    elif finding.cause is Cause.GROUP_ORDER:
        finding = _held_up_by_a_lock(facts, finding)
        if finding.cause is Cause.GROUP_ORDER:
            finding = past_its_peers(facts, finding)
    return finding


def _at_its_stack(facts: CaseFacts, finding: Finding) -> Finding:
    """The finding with what a stack that lies beside dumps shows of the rank that has not come."""
    view = facts.ranks.get(finding.culprits[0]) if len(finding.culprits) == 1 else None
    if view is None or not view.rank_stacks or not facts.in_no_operation(view.rank):
        return finding
    cause, _, words, location = classify(facts, view)
    line = name_line(location)
    place = words if words.endswith(line) else f"{words}{line}"
    return as_cause(
        finding,
        cause,
        location=location,
        summary=f"{finding.summary.removesuffix('.')}: {words.removesuffix(line)}{line}.",
        evidence=[Evidence("stack", view.rank, place), *finding.evidence],
    )


def _held_up_by_a_lock(facts: CaseFacts, finding: Finding) -> Finding:
    """Groups in opposite order as a deadlock, where a lock keeps a thread from one of them.

    That thread is in the function in which a peer has entered the group: others that want the
    lock are held up by the hang, and are no part of it.
    """
    if len(finding.culprits) != 1:
        return finding
    (rank,) = finding.culprits
    view = facts.ranks[rank]
    lock = lock_held_in_operation(facts, view)
    theirs = {
        (frame.file, frame.function)
        for cycle in facts.graph.cycles
        if rank in cycle.ranks
        for call in cycle.calls
        if call.rank != rank
        for frame in call.stack
    }
    if lock is None or (lock.waiter.file, lock.waiter.function) not in theirs:
        return finding
    holder, waiter = view.location(lock.holder), view.location(lock.waiter)
    return as_cause(
        finding,
        Cause.PYTHON_DEADLOCK,
        location=holder,
        advice="Let go of the lock before the operation: other threads of the rank need it to come "
        "to theirs, for which its peers wait.",
        summary=f"Rank {rank} holds a lock within an operation{name_line(holder)}, and another "
        f"thread of it waits for that{name_line(waiter)} before one that its peers are in. "
        f"{finding.summary}",
        evidence=[
            Evidence("stack", rank, f"holds a lock{name_line(holder)}"),
            Evidence("stack", rank, f"waits for that lock in another thread{name_line(waiter)}"),
            *finding.evidence,
        ],
    )


def _difference(facts: CaseFacts, finding: Finding) -> Divergence | None:
    """The difference of calls that a finding tells."""
    at = finding.collective
    if at is None:
        return None
    found = (one for one in facts.graph.divergences if one.group.name == at.group_id)
    return next((one for one in found if one.seq == at.seq), None)


def _by_thread_turns(facts: CaseFacts, finding: Finding) -> bool:
    difference = _difference(facts, finding)
    return difference is not None and difference.thread_turns
