"""Ranks that wait for each other in a ring: groups in opposite order, sends that face sends."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.analyzer.causes.thresholds import LISTED_ROWS
from hanglab.analyzer.facts.call_wording import location, name_call, name_group, observation, shapes
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims
from hanglab.analyzer.graph.wait_for_graph import (
    Cycle,
    EndedOtherwise,
    Unmatched,
    WaitForGraph,
)
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED, SEEN, SHOWN, TIED
from hanglab.analyzer.verdict import Cause, Finding, Status
from hanglab.analyzer.wording import ANY_RANK, MISS, MISS_BY, name_ranks


def cycle_findings(graph: WaitForGraph) -> list[Finding]:
    """Rings that are nothing but sends and receives, or nothing but collectives."""
    mixed = {id(u.call) for u in graph.unmatched}
    return [
        _cycle_finding(graph, cycle)
        for cycle in graph.cycles
        if not any(id(call) in mixed for call in cycle.calls)
    ]


def added_findings(graph: WaitForGraph) -> list[Finding]:
    """Operations that one rank alone is in, against its own order."""
    return [_added_finding(graph, call) for call in graph.added]


def _added_finding(graph: WaitForGraph, call: Call) -> Finding:
    cause = Cause.COLLECTIVE_MISMATCH if call.seq is not None else Cause.P2P_UNMATCHED
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=[call.rank],
        victims=all_victims(graph, [call.rank]),
        collective=collective_ref(call),
        location=location(call),
        confidence=CONCLUDED if len(call.group.members) > 2 else CANDIDATES,
        summary=(
            f"Rank {call.rank} alone is in {name_call(call)}, where its own order so far, or that "
            "of its peers, has another operation; these have nothing unfinished."
        ),
        evidence=[observation(call, "waits in")],
        advice=cause.advice,
    )


def ended_findings(graph: WaitForGraph) -> list[Finding]:
    """Numbers that fewer ranks have ended than are in them: those called something else there."""
    return [_ended_finding(graph, ended) for ended in graph.ended_otherwise]


def _ended_finding(graph: WaitForGraph, ended: EndedOtherwise) -> Finding:
    cause, ranks = Cause.COLLECTIVE_MISMATCH, sorted(ended.ranks)
    inside = [call.rank for call in ended.calls]
    culprits = sorted([*ranks, *inside]) if ended.tied else ranks
    first, *_ = ended.calls
    device = "several devices, or the network, have"
    if ended.tied:
        device = f"the device of rank {inside[0]} has"
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        collective=collective_ref(first),
        location=None,
        confidence=TIED if ended.tied else CONCLUDED,
        summary=(
            f"{name_ranks(ranks).capitalize()} ended number {first.seq} of "
            f"{name_group(first.group)}, in which "
            f"{name_ranks(inside)} {'waits' if ended.tied else 'wait'} in {first.op}: nobody ends "
            "that before all have taken part, so "
            f"{'one of the two called' if ended.tied else 'what was called there is'} another "
            f"operation, which no dump holds. Else {device} stopped."
        ),
        evidence=[observation(call, "waits in") for call in ended.calls[:LISTED_ROWS]],
        advice=cause.advice,
    )


def unmatched_findings(graph: WaitForGraph) -> list[Finding]:
    """Sends and receives whose other half never came, although the peer is past it."""
    return [_unmatched_finding(graph, unmatched) for unmatched in graph.unmatched]


def _cycle_finding(graph: WaitForGraph, cycle: Cycle) -> Finding:
    cause = Cause.P2P_DEADLOCK if cycle.p2p else Cause.GROUP_ORDER
    how = "wait for each other"
    if cycle.wrong_group:
        cause = Cause.COLLECTIVE_MISMATCH
        groups = " and ".join(dict.fromkeys(call.group.name for call in cycle.calls))
        how = f"make the same call of the program in different groups, {groups}"
    elif cycle.lacks_message:
        # It may have been left out, or have gone elsewhere, or come behind the collective.
        cause = Cause.P2P_UNMATCHED
    elif cycle.repeated:
        cause = Cause.COLLECTIVE_MISMATCH
        how = f"wait for each other, as {name_ranks(cycle.deviating)} makes its last call once more"
    elif cycle.miscounted:
        cause = Cause.COLLECTIVE_MISMATCH
        how = "wait for each other, as one has left out a call of the other, or has one too many"
    elif cycle.p2p and cycle.deviating:
        cause = Cause.P2P_UNMATCHED
        how = "wait for each other"
        if not cycle.outvoted_by:
            how += f", as {name_ranks(cycle.deviating)} alone left its rounds so far"
    # A ring of sends and receives that nobody came to otherwise is nobody's fault alone.
    undecided = cycle.ranks if cycle.p2p else cycle.candidates
    culprits = sorted(cycle.deviating or undecided)
    calls = {call.rank: call for call in cycle.calls}
    chain = "; ".join(f"rank {call.rank} in {name_call(call)}" for call in cycle.calls[:8])
    first = next(calls[rank] for rank in [*culprits, *cycle.ranks] if rank in calls)
    voted = ""
    if cycle.outvoted_by:
        voted = (
            f" {name_ranks(culprits).capitalize()} went on otherwise than {cycle.outvoted_by} "
            "ranks that had called the same until then."
        )
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        collective=collective_ref(first),
        location=location(first),
        confidence=_confidence(cycle),
        summary=f"{name_ranks(cycle.ranks).capitalize()} {how}: {chain}.{voted}",
        evidence=[observation(call, "waits in") for call in cycle.calls[:LISTED_ROWS]],
        advice=cause.advice,
    )


def _confidence(cycle: Cycle) -> float:
    if not cycle.certain:
        return TIED
    if cycle.deviating:
        return SEEN
    if cycle.p2p:
        return SHOWN
    return TIED if any(call.seq is None for call in cycle.calls) else CANDIDATES


def _unmatched_finding(graph: WaitForGraph, unmatched: Unmatched) -> Finding:
    cause = Cause.P2P_UNMATCHED if unmatched.call.seq is None else Cause.SKIPPED_COLLECTIVE
    call, instead = unmatched.call, unmatched.instead
    other = instead.rank if instead is not None else call.peer
    sides = [call.rank if unmatched.sender is None else unmatched.sender]
    sides += [other] if other is not None else []
    culprits = sorted(unmatched.deviating or sides)
    first = instead if instead is not None and culprits == [instead.rank] else call
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        collective=collective_ref(call),
        location=location(first),
        confidence=_unmatched_confidence(unmatched),
        summary=_unmatched_summary(unmatched, culprits),
        evidence=[
            observation(c, _stands(graph, c) if unmatched.missing else "waits in")
            for c in (call, instead)
            if c is not None
        ]
        + [observation(c, "waits in") for c in _distinct(unmatched.missed) if c is not instead],
        advice=cause.advice,
    )


def _stands(graph: WaitForGraph, call: Call) -> str:
    """Words for how a rank stands to a call: on gloo no buffer tells which sends have ended."""
    if call.completed:
        return "has ended"
    waits = any(
        (one.rank, one.op, one.peer, one.tag, one.group)
        == (call.rank, call.op, call.peer, call.tag, call.group)
        for one in (wait.call for wait in graph.waits)
    )
    return "waits in" if waits else "has issued"


def _unmatched_summary(unmatched: Unmatched, culprits: Sequence[int]) -> str:
    call, instead = unmatched.call, unmatched.instead
    if call.seq is not None:
        who = "it" if len(culprits) == 1 else f"rank {instead.rank}" if instead is not None else ""
        where = f"; {who} waits in {name_call(instead)}" if instead is not None else ""
        since = "and has finished many later operations since"
        if unmatched.by_rounds:
            since = "which each of their own rounds so far has there"
            if len(culprits) == 1:
                since = "which each of its own rounds so far has there"
        return (
            f"{name_ranks(culprits).capitalize()} left out {name_call(call)}, in which rank "
            f"{call.rank} waits, {since}{where}."
        )
    if unmatched.missing and instead is not None:
        halves = (("groups", call.group.name, instead.group.name), ("tags", call.tag, instead.tag))
        unlike = [f"{what} {one} and {other}" for what, one, other in halves if one != other]
        return (
            f"{name_ranks([call.rank, instead.rank]).capitalize()}{MISS}rank "
            f"{call.rank} in {name_call(call)}, rank {instead.rank} in {name_call(instead)}"
            f"{MISS_BY}{' and '.join(unlike)}."
        )
    if unmatched.shifted:
        met = "one that has ended"
        if unmatched.missed:
            other = unmatched.missed[0]
            met = f"rank {other.rank}'s {name_call(other)} ({shapes(other)})"
        return (
            f"Rank {call.rank}'s {name_call(call)} ({shapes(call)}) meets {met}, of another size: "
            "one of the two left a message out before, or has one too many."
        )
    peer = call.peer if call.peer is not None or instead is None else instead.rank
    if unmatched.queued and instead is not None:
        return (
            f"Rank {call.rank}'s {name_call(call)} has its counterpart on rank {peer} behind "
            f"{name_call(instead)}, in which that one waits for it."
        )
    if unmatched.sender is not None:
        untold = f"; or rank {peer} took too few" if not unmatched.deviating else ""
        return (
            f"Rank {unmatched.sender} sent one message more than its share to rank {peer}{ANY_RANK}"
            f", so that rank {call.rank}'s has no counterpart{untold}."
        )
    where = f", which waits in {name_call(instead)}" if instead is not None else ""
    return (
        f"Rank {call.rank}'s {name_call(call)} has no counterpart on rank {peer}{where}"
        f"{_missed(unmatched)}."
    )


def _unmatched_confidence(unmatched: Unmatched) -> float:
    if not unmatched.deviating:
        return TIED
    if unmatched.missing:
        return SHOWN
    return CANDIDATES if unmatched.likely else CONCLUDED


def _missed(unmatched: Unmatched) -> str:
    if not unmatched.missed:
        return ""
    missed = _distinct(unmatched.missed)[:4]
    waits = "; ".join(f"rank {c.rank} waits in {name_call(c)}" for c in missed)
    return f", while {waits}"


def _distinct(calls: Sequence[Call]) -> list[Call]:
    """One of each that reads alike: hosts that run ahead have launched the same many times."""
    return list({(call.rank, name_call(call)): call for call in reversed(calls)}.values())[::-1]
