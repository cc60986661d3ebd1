"""Findings as what they are by the places in the program at which a rank and its peers stand.

Whoever is further on than those who wait for it has left out what they wait in; whoever is behind
them has made a call too many.
"""

from __future__ import annotations

from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.facts.case_facts import CaseFacts, collective_ref
from hanglab.analyzer.facts.launches import is_blocking
from hanglab.analyzer.facts.loops import further_on, have_one_part
from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import as_cause
from hanglab.analyzer.verdict import Cause, Evidence, Finding
from hanglab.analyzer.wording import name_ranks


def past_its_peers(facts: CaseFacts, finding: Finding) -> Finding:
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
    return as_cause(
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


def behind_peers(facts: CaseFacts, finding: Finding) -> Finding:
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
        is_blocking(facts.ranks[peer], call.group.name) and facts.ranks[peer].inside_operation
        for peer, call in waiting.items()
    )
    if mine.seq is None or not blocked or not all(places):
        return finding
    return as_cause(
        finding,
        Cause.COLLECTIVE_MISMATCH,
        summary=f"Rank {rank} called {name_call(mine)}, which is one call too many: its peers, who "
        f"have not entered it, are in {places[0]}.",
        evidence=[
            Evidence("stack", rank, f"while it waits, its peers are in {places[0]}"),
            *finding.evidence,
        ],
    )


def further_than_peers(facts: CaseFacts, finding: Finding) -> Finding:
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
    return as_cause(
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


def _blocks_host(facts: CaseFacts, call: Call) -> bool:
    """True if the rank's host is known to be in the call, so that its stack tells the place."""
    view = facts.ranks.get(call.rank)
    if view is None:
        return False
    lines = {(frame.file, frame.line) for frame in view.program_frames}
    called = view.code.user_frames(call.stack)
    return is_blocking(view, call.group.name) and (
        not called or (called[0].file, called[0].line) in lines
    )
