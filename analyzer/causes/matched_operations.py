"""Proposals from the matched operations alone: findings of the graph, in the order of decision.

In a Case they are sharpened by what a dump cannot know: the line at which a
culprit stands, and whether a rank that others wait for is explained by its
process, its stack or its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.causes.synchronization.divergence import undecided_differences
from hanglab.analyzer.causes.synchronization.out_of_turn import alternatives, as_call_out_of_turn
from hanglab.analyzer.facts.absent_ranks import absent_ranks, classify
from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.facts.calls_per_batch import left_out_for_no_batch
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.cut_links import lossy_directions
from hanglab.analyzer.facts.device_progress import unstarted_ranks
from hanglab.analyzer.facts.failures import failure_of
from hanglab.analyzer.facts.further_rounds import (
    at_the_end_of_input,
    further_rounds,
    more_rounds,
)
from hanglab.analyzer.facts.held_locks import lock_held_in_operation
from hanglab.analyzer.facts.launches import held_in_launch, launched_line
from hanglab.analyzer.facts.loop_decisions import not_for_input
from hanglab.analyzer.facts.loops import (
    further_on,
    have_one_part,
    left_loops,
    others_behind,
    steps_compared,
)
from hanglab.analyzer.facts.source_loops import is_behind_loop_of
from hanglab.analyzer.facts.split_lists import first_disagreement
from hanglab.analyzer.flight_recorder.columns import ABSENT, Frame
from hanglab.analyzer.graph.wait_for_graph import Sink
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.matching.signatures import call_site
from hanglab.analyzer.proposal import Proposal, detector
from hanglab.analyzer.strengths import ALTERNATIVE, CONCLUDED, PLAUSIBLE
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Location, Status
from hanglab.analyzer.wording import name_line, name_ranks
from hanglab.recorder.case.backends import backends_in

_OUTSIDE = frozenset({Cause.MISSING_RANK})
#: Causes of a rank that has left something out, as far as calls tell.
_LEFT_OUT = frozenset({Cause.SKIPPED_COLLECTIVE, Cause.P2P_UNMATCHED})
#: Differences after which a rank may be found to have left its peers' loop.
_MAY_BE_UNEVEN = frozenset({Cause.COLLECTIVE_MISMATCH, Cause.SKIPPED_COLLECTIVE})


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
    if facts.case:
        yield from _decided_by_loops(facts)


def _decided_by_loops(facts: CaseFacts) -> Iterator[Proposal]:
    """Differences that missing votes leave undecided, where one rank alone has left a loop."""
    for divergence, finding in undecided_differences(facts.graph):
        if finding.cause not in _MAY_BE_UNEVEN:
            continue
        ranks = sorted({*finding.culprits, *divergence.unknown_calls} & facts.ranks.keys())
        gone = _gone_on(facts, divergence, ranks)
        if len(gone) == 1 and gone[0] in finding.culprits:
            told = _past_the_loop(facts, finding, gone[0])
            if told is not finding:
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
    return _is_blocking(view, sink.awaited.group.name)


def _is_blocking(view: RankView, group: str) -> bool:
    backends = {one.backend for one in view.groups if one.id == group}
    return bool(backends) and all(one.blocking for b in backends for one in backends_in(b))


def _blocks_host(facts: CaseFacts, call: Call) -> bool:
    """True if the rank's host is known to be in the call, so that its stack tells the place."""
    view = facts.ranks.get(call.rank)
    if view is None:
        return False
    lines = {(frame.file, frame.line) for frame in view.program_frames}
    called = view.code.user_frames(call.stack)
    return _is_blocking(view, call.group.name) and (
        not called or (called[0].file, called[0].line) in lines
    )


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
    if finding.cause in _MAY_BE_UNEVEN:
        difference = _difference(facts, finding)
        gone = _gone_on(facts, difference, [r for r in finding.culprits if r in facts.ranks])
        if len(gone) == 1:
            finding = _past_the_loop(facts, finding, gone[0])
        elif gone and difference is not None:
            finding = _in_the_loop_alone(facts, finding, difference, gone)
        else:
            finding = _at_the_end_of_input(facts, _ended_sooner(facts, finding))
    if finding.cause is Cause.SIZE_MISMATCH:
        finding = as_call_out_of_turn(facts, finding)
    elif finding.cause is Cause.COLLECTIVE_MISMATCH:
        finding = _further_than_peers(facts, finding)
        peers = {wait.call.rank for wait in facts.graph.waits}
        finding = _in_further_rounds(facts, finding, sorted(peers - {*finding.culprits}))
    elif finding.cause in _LEFT_OUT:
        finding = _behind_peers(facts, finding)
        if finding.cause is Cause.P2P_UNMATCHED:
            finding = _past_its_peers(facts, finding)
    elif finding.cause is Cause.GROUP_ORDER:
        finding = _held_up_by_a_lock(facts, finding)
        if finding.cause is Cause.GROUP_ORDER:
            finding = _past_its_peers(facts, finding)
    return finding


def _at_its_stack(facts: CaseFacts, finding: Finding) -> Finding:
    """The finding with what a stack that lies beside dumps shows of the rank that has not come."""
    view = facts.ranks.get(finding.culprits[0]) if len(finding.culprits) == 1 else None
    if view is None or not view.rank_stacks or not facts.in_no_operation(view.rank):
        return finding
    cause, _, words, location = classify(facts, view)
    line = name_line(location)
    place = words if words.endswith(line) else f"{words}{line}"
    return _as_cause(
        finding,
        cause,
        location=location,
        summary=f"{finding.summary.removesuffix('.')}: {words.removesuffix(line)}{line}.",
        evidence=[Evidence("stack", view.rank, place), *finding.evidence],
    )


def _as_cause(finding: Finding, cause: Cause, **changes: Any) -> Finding:
    """The finding by another cause, with its category, and its advice if there is no other one."""
    words = {"category": cause.category, "advice": cause.advice, **changes}
    return msgspec.structs.replace(finding, cause=cause, **words)


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
    return _as_cause(
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


def _past_its_peers(facts: CaseFacts, finding: Finding) -> Finding:
    """A ring, or a message amiss, as an omission, where the rank is past the place of its peers.

    It would come to what they wait in no more, in that round.  Peers that have gone into other
    functions have a part of their own, and tell nothing.
    """
    if len(finding.culprits) != 1:
        return finding
    (rank,) = finding.culprits
    view = facts.ranks[rank]
    missed = [w.call for w in facts.graph.waits if rank in w.on and w.call.rank in facts.ranks]
    peers = [facts.ranks[call.rank] for call in missed]
    places = [further_on(view, peer) for peer in peers if have_one_part(view, peer)]
    if not places or not all(places) or any(_has_issued(facts, rank, call) for call in missed):
        return finding  # A host that runs ahead is past what its device has yet to do.
    return _as_cause(
        finding,
        Cause.SKIPPED_COLLECTIVE,
        collective=collective_ref(missed[0]),
        summary=f"Rank {rank} left out {name_call(missed[0])} and went on to {places[0]}. "
        f"{finding.summary}",
        evidence=[
            Evidence("stack", rank, f"while its peers wait, it is in {places[0]}"),
            *finding.evidence,
        ],
    )


def _has_issued(facts: CaseFacts, rank: int, call: Call) -> bool:
    """True if a rank made the collective that another one waits in; of a message nobody knows."""
    lookup = facts.graph.lookup
    if call.seq is None or lookup is None:
        return call.seq is None
    return lookup.index_of(rank, call.group.name, call.seq) != ABSENT


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


def _behind_peers(facts: CaseFacts, finding: Finding) -> Finding:
    """An omission as one call too many, where all who wait are further on in the program.

    Whoever has left something out is no less far than they are.
    """
    waiting = {wait.call.rank: wait.call for wait in facts.graph.waits}
    if len(finding.culprits) != 1 or len(waiting) < len(facts.ranks):
        return finding
    (rank,) = finding.culprits
    mine = waiting[rank]
    places = [
        further_on(facts.ranks[peer], facts.ranks[rank], f"rank {rank}'s")
        for peer in waiting
        if peer != rank
    ]
    # An asynchronous message has its wait in another line than its call.
    blocked = all(
        _is_blocking(facts.ranks[peer], call.group.name) and facts.ranks[peer].inside_operation
        for peer, call in waiting.items()
    )
    if mine.seq is None or not blocked or not all(places):
        return finding
    return _as_cause(
        finding,
        Cause.COLLECTIVE_MISMATCH,
        summary=f"Rank {rank} called {name_call(mine)}, which is one call too many: its peers, who "
        f"have not entered it, are in {places[0]}.",
        evidence=[
            Evidence("stack", rank, f"while it waits, its peers are in {places[0]}"),
            *finding.evidence,
        ],
    )


def _further_than_peers(facts: CaseFacts, finding: Finding) -> Finding:
    """The difference as an omission, where peers did as much in less of the program.

    Peers that could finish the operation all the same may be further on.
    """
    at = finding.collective
    if at is None or at.seq is None:
        return finding
    blocked = {
        wait.call.rank: wait.call.seq or 0
        for wait in facts.graph.waits
        if wait.call.group.name == at.group_id and _blocks_host(facts, wait.call)
    }
    peers = [r for r, seq in blocked.items() if seq >= at.seq and r not in finding.culprits]
    places = [
        [words for peer in peers if (words := further_on(facts.ranks[rank], facts.ranks[peer]))]
        for rank in finding.culprits
        if rank in blocked
    ]
    if len(places) < len(finding.culprits) or not all(places):
        return finding
    culprits = finding.culprits
    cause = Cause.SKIPPED_COLLECTIVE
    who = name_ranks(culprits)
    return _as_cause(
        finding,
        cause,
        summary=f"{who.capitalize()} left an operation out and went on to {places[0][0]}. "
        f"{finding.summary}",
        evidence=[
            *(
                Evidence("stack", rank, f"after as many operations it is in {words[0]}")
                for rank, words in zip(culprits, places, strict=True)
            ),
            *finding.evidence,
        ],
    )


def _do_not_run_ahead(facts: CaseFacts, finding: Finding) -> bool:
    """True if no host goes on before its operations: who is a step further has done its own."""
    at = finding.collective
    return at is not None and all(_is_blocking(v, at.group_id) for v in facts.ranks.values())


def _in_further_rounds(facts: CaseFacts, finding: Finding, peers: Sequence[int]) -> Finding:
    """The difference as uneven inputs, where the culprits alone have rounds left to do."""
    more = further_rounds(facts, finding.culprits, peers)
    if finding.cause is not Cause.COLLECTIVE_MISMATCH or more is None:
        return finding
    return _as_cause(
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
    told = _in_further_rounds(facts, few, behind)
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
    cause = Cause.UNEVEN_INPUTS if fewer and not told else Cause.SKIPPED_COLLECTIVE
    many = "more steps and no more" if more else "as many steps but fewer"
    done = "after fewer steps" if fewer and not told else f"after {many} operations"
    words = compared[1] if compared is not None else "by the operations that it did there"
    when = " after as many steps" if compared is not None and not compared[0] else ""
    if told:
        done = "after fewer rounds or operations, and not for want of input"
        words += f"; {told}"
    return _as_cause(
        finding,
        cause,
        culprits=[rank],
        victims=sorted({*finding.victims, *finding.culprits} - {rank}),
        location=_current_line(facts, rank) or finding.location,
        confidence=max(finding.confidence, CONCLUDED) if compared is not None else PLAUSIBLE,
        summary=f"Rank {rank} has left the loop that its peers are in, {done} ({words}); "
        "its next operation meets the wrong one of theirs.",
        evidence=[
            Evidence("stack", rank, f"behind its peers' loop{when}; {words}"),
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
        peer = next(one for rank, one in divergence.calls.items() if rank not in ranks)
        if not is_behind_loop_of(facts, call.stack, peer.stack):
            continue
        how = ""
        if divergence.new_call_in is not None:
            mine, theirs = divergence.new_call_in
            how = f"in step {mine} of the job, they in step {theirs}" if mine < theirs else ""
        elif left_out_for_no_batch(facts, ranks[0], peer):
            how = "after fewer batches, for each of which it made its calls"
        if how:
            return _as_cause(
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
    return _as_cause(
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
