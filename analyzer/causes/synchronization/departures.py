"""Ranks that left the order of operations which all others keep."""

from __future__ import annotations

from hanglab.analyzer.facts.argument_differences import CAUSES, WORDS
from hanglab.analyzer.facts.call_wording import location, name_call, name_group, observation
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims, current_call
from hanglab.analyzer.graph.wait_for_graph import OrderDeparture, WaitForGraph
from hanglab.analyzer.matching.calls import Call, Difference
from hanglab.analyzer.matching.signatures import argument_difference, call_site
from hanglab.analyzer.strengths import CONCLUDED, PLAUSIBLE, SEEN, TIED
from hanglab.analyzer.verdict import Cause, Finding, Status
from hanglab.analyzer.wording import UNTOLD, name_ranks


def departure_findings(graph: WaitForGraph) -> list[Finding]:
    return [_finding(graph, departure) for departure in graph.departures]


def _finding(graph: WaitForGraph, departure: OrderDeparture) -> Finding:
    rank, mine, theirs = departure.rank, departure.call, departure.instead
    difference = _argument_difference(departure)
    cause = _cause(departure) if difference is None else CAUSES[difference]
    culprits = sorted([rank, *departure.tied, *departure.others])
    named = _operation(graph, departure)
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        collective=collective_ref(named) if named is not None else None,
        location=location(current_call(graph, rank) or mine or graph.last_calls.get(rank)),
        confidence=_confidence(departure),
        summary=_summary(departure),
        evidence=[
            *([observation(mine)] if mine is not None else []),
            *([observation(theirs, "a peer called")] if theirs is not None else []),
        ],
        advice=cause.advice,
    )


def _operation(graph: WaitForGraph, departure: OrderDeparture) -> Call | None:
    """The call of a peer that shows it, or the like one that waits for the rank in its own group.

    A peer whose order is compared may make its calls in groups of its own.
    """
    first, rank = departure.instead or departure.call, departure.rank
    if first is None or rank in first.group.members:
        return first
    waiting = (wait.call for wait in graph.waits if rank in wait.on)
    message = first.seq is None
    alike = (one for one in waiting if rank in one.group.members and (one.seq is None) is message)
    return next(alike, first)


def _argument_difference(departure: OrderDeparture) -> Difference | None:
    """Difference where both called one operation, each in a group of its own maybe; else None."""
    mine, theirs = departure.call, departure.instead
    if mine is None or theirs is None or departure.left_out or departure.added:
        return None
    if mine.op != theirs.op or (mine.group is theirs.group and mine.seq != theirs.seq):
        return None
    if mine.group is not theirs.group and (
        mine.rank in theirs.group.members or call_site(mine.stack) != call_site(theirs.stack)
    ):
        return None  # It might have called that one instead, or made another call.
    return argument_difference(mine, theirs)


def _cause(departure: OrderDeparture) -> Cause:
    """The cause, by what was left out or is one too many: it may be a send or receive."""
    if departure.swapped or departure.ring:
        return Cause.GROUP_ORDER
    skipped = departure.left_out and not departure.tied
    odd = [departure.instead] if skipped else [departure.call]
    if not (skipped or departure.added or departure.own):
        odd.append(departure.instead)
    if all(call is not None and call.seq is None for call in odd):
        return Cause.P2P_UNMATCHED
    return Cause.SKIPPED_COLLECTIVE if skipped else Cause.COLLECTIVE_MISMATCH


def _confidence(departure: OrderDeparture) -> float:
    if departure.tied:
        return TIED
    if len(departure.siblings) == 1:
        return PLAUSIBLE
    return SEEN if departure.left_out or departure.added else CONCLUDED


def _summary(departure: OrderDeparture) -> str:
    who = f"Rank {departure.rank}"
    if departure.others:
        who += f", and {name_ranks(departure.others)} alike,"
    mine = name_call(departure.call) if departure.call is not None else "nothing more"
    theirs = name_call(departure.instead) if departure.instead is not None else "nothing more"
    difference = _argument_difference(departure)
    if difference is not None:
        whose = f"rank {departure.tied[0]}" if departure.tied else "its peers"
        unsure = UNTOLD if departure.tied else ""
        return f"{who} called {mine} with {WORDS[difference]} than {whose}{unsure}."
    if departure.tied and _is_one_call_in_two_groups(departure):
        return (
            f"{who} made a call of the program as {mine}, rank {departure.tied[0]} made the same "
            f"one as {theirs}{UNTOLD}."
        )
    if departure.tied:
        return (
            f"Where rank {departure.rank} called {mine}, rank {departure.tied[0]} called {theirs}: "
            "one of them left a call out, or has one too many, and nothing tells which."
        )
    if departure.counted and departure.call is not None:
        by = "less" if departure.left_out else "more"
        return (
            f"{who} has issued one call {by} of {name_group(departure.call.group)} than its peers, "
            "who agree, up to each collective of other groups that they have in common; its buffer "
            "has lost where."
        )
    if departure.left_by_others:
        return (
            f"{who} called {mine}, as in each of its rounds before; all others left that out, and "
            f"rank {_peer(departure)} waits in {theirs}."
        )
    if departure.swapped:
        return (
            f"{who} called {mine} and what its own rounds so far have before that the other way "
            f"round; all others keep to theirs, and rank {_peer(departure)} waits in {theirs}."
        )
    if departure.ring:
        whose = "its own rounds so far have" if departure.own else "the order of all its peers has"
        return (
            f"{who} waits in {mine}, before which {whose} {theirs}; rank {_peer(departure)} waits "
            "there for it."
        )
    if departure.own:
        return (
            f"{who} called {mine}, which {_unlike(departure)}; all others wait where they stand in "
            f"their own rounds, rank {_peer(departure)} in {theirs}."
        )
    if departure.siblings:
        return _summary_by_siblings(departure)
    if departure.left_out:
        return (
            f"{who} left out {_left_out(departure)}, went on to {mine}, and does from there on "
            "what its peers do, whose orders all agree."
        )
    if departure.added:
        return (
            f"{who} called {mine}, which the order that all its peers keep does not have there; "
            "what it called after that is theirs again."
        )
    return (
        f"{who} called {mine} where the order that all its peers keep has {theirs}. Whether it "
        "left that out, put it behind, or has one call too many is in what it would call next."
    )


def _summary_by_siblings(departure: OrderDeparture) -> str:
    """The sentence of a rank whose place in other replicas tells what it was to do."""
    mine = name_call(departure.call) if departure.call is not None else "nothing more"
    theirs = name_call(departure.instead) if departure.instead is not None else "nothing more"
    siblings = name_ranks(departure.siblings)
    return (
        f"Rank {departure.rank} called {mine} where {siblings}, in its place in other replicas, "
        f"called {theirs}; the other ends of its messages do what their own siblings do."
    )


def _is_one_call_in_two_groups(departure: OrderDeparture) -> bool:
    mine, theirs = departure.call, departure.instead
    if mine is None or theirs is None or not mine.stack or mine.group is theirs.group:
        return False
    return (mine.op, mine.stack, mine.arguments) == (theirs.op, theirs.stack, theirs.arguments)


def _unlike(departure: OrderDeparture) -> str:
    return "is one call too many" if departure.added else "its own rounds so far do not have there"


def _peer(departure: OrderDeparture) -> str:
    return "" if departure.instead is None else str(departure.instead.rank)


def _left_out(departure: OrderDeparture) -> str:
    """The call that a peer made; of a message, whose other end is another one for each rank."""
    call = departure.instead
    if call is None or call.seq is not None:
        return name_call(call) if call is not None else "nothing more"
    return f"a {call.op} of {name_group(call.group)}"
