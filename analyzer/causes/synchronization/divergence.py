"""Members of a group that do not do the same under one number: operations or arguments."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.facts.argument_differences import CAUSES, WORDS
from hanglab.analyzer.facts.call_wording import (
    line_of,
    location,
    name_call,
    name_group,
    observation,
    shapes,
)
from hanglab.analyzer.facts.case_facts import collective_ref
from hanglab.analyzer.facts.waiting_ranks import all_victims, current_call, may_explain_hang
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, UnknownCall
from hanglab.analyzer.matching.signatures import difference, splits_of
from hanglab.analyzer.strengths import INFERRED, PROVED, TIED
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Status
from hanglab.analyzer.wording import (
    AWAY,
    UNTOLD,
    Need,
    name_needs,
    name_ranks,
    need_dump,
    need_later_dump,
    need_whole_dump,
)

_ONE_GROUP_EACH = (
    "Give each thread a process group of its own (new_group), as what saves in the background "
    "(async_save takes process_group=), or wait for that before the next operation."
)


def divergence_findings(graph: WaitForGraph) -> list[Finding]:
    return [
        _finding(graph, d)
        for d in graph.divergences
        if may_explain_hang(graph, d) and not d.undecided
    ]


def undecided_differences(graph: WaitForGraph) -> Iterator[tuple[Divergence, Finding]]:
    """Differences that dumps leave undecided, each with the finding that names all who differ."""
    for divergence in graph.divergences:
        if divergence.undecided and may_explain_hang(graph, divergence):
            yield divergence, _finding(graph, divergence)


def undecided_divergence(graph: WaitForGraph) -> Divergence | None:
    """The first difference of which missing votes could decide who deviates."""
    found = (d for d in graph.divergences if d.undecided and may_explain_hang(graph, d))
    return next(found, None)


def deciding_evidence(graph: WaitForGraph, divergence: Divergence) -> list[Need]:
    """The evidence that would tell who deviates, such as rank 5's dump."""
    return [
        _missing_vote(graph, divergence, rank) for rank in sorted(divergence.unknown_calls)
    ] or [Need(f"the dumps of any ranks after {max(graph.expected)}")]


def _missing_vote(graph: WaitForGraph, divergence: Divergence, rank: int) -> Need:
    reason = divergence.unknown_calls[rank]
    if reason is UnknownCall.OVERWRITTEN:
        holding = (
            "of {} (TORCH_FR_BUFFER_SIZE, in older torch TORCH_NCCL_TRACE_BUFFER_SIZE) that still "
        )
        return Need(
            f"a longer buffer {holding}holds number {divergence.seq}",
            f"longer buffers {holding}hold number {divergence.seq}",
            rank,
        )
    if reason is UnknownCall.UNLINED:
        return Need("a dump of {} with stacks", "dumps of {} with stacks", rank)
    if reason is UnknownCall.FINISHED:
        ending = "of {} with finished operations, too"
        return Need(f"a dump {ending}", f"dumps {ending}", rank)
    if rank in graph.progressing:
        return need_later_dump(rank)
    if rank not in graph.ranks:
        return need_dump(rank)
    return need_whole_dump(rank)


def undecided_finding(graph: WaitForGraph, divergence: Divergence) -> Finding:
    """The inconclusive finding that a difference is where missing votes could decide it."""
    needs = name_needs(deciding_evidence(graph, divergence))
    calls = list(divergence.calls.values())
    return Finding(
        status=Status.INCONCLUSIVE,
        victims=sorted(divergence.calls),
        collective=collective_ref(calls[0]),
        confidence=0.0,
        summary=(
            f"Under number {divergence.seq} of {name_group(divergence.group)} "
            f"{_calls_by_side(calls)}, and who of them is wrong cannot be told without "
            f"{_listed(needs)}."
        ),
        evidence=[observation(call) for call in calls[:16]],
        advice="Get " + ", ".join(needs) + ".",
    )


def _calls_by_side(calls: list[Call]) -> str:
    """``ranks 0 and 1 called all_reduce, rank 2 called broadcast``: most first."""
    sides: dict[str, list[Call]] = {}
    for call in calls:
        given = shapes(call)
        words = f"called {call.op or 'an operation'}{line_of(call)}" + (
            f" ({given})" if given else ""
        )
        sides.setdefault(words, []).append(call)
    ordered = sorted(sides.items(), key=lambda side: -len(side[1]))
    parts = [f"{name_ranks([c.rank for c in mine])} {words}" for words, mine in ordered[:3]]
    more = "" if len(ordered) <= 3 else f" and {len(ordered) - 3} others something else"
    return ", ".join(parts) + more


def _listed(words: list[str]) -> str:
    shown = words[:3] + ([f"{len(words) - 3} more"] if len(words) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def cause_of(divergence: Divergence) -> Cause:
    if divergence.skipped:
        return Cause.SKIPPED_COLLECTIVE
    return CAUSES.get(divergence.difference, Cause.COLLECTIVE_MISMATCH)


def _finding(graph: WaitForGraph, divergence: Divergence) -> Finding:
    cause = cause_of(divergence)
    culprits = list(divergence.deviating or divergence.candidates)
    calls = divergence.calls
    mine = [calls[rank] for rank in culprits if rank in calls]
    others = [call for rank, call in calls.items() if rank not in culprits]
    first = mine[0] if mine else next(iter(calls.values()))
    reference_call = others[0] if others else first
    here = current_call(graph, first.rank) if divergence.finished else first
    return Finding(
        status=Status.HUNG,
        category=cause.category,
        cause=cause,
        culprits=culprits,
        victims=all_victims(graph, culprits),
        collective=collective_ref(reference_call),
        location=location(here),
        confidence=_confidence(divergence),
        summary=_summary(divergence, culprits, first, reference_call),
        evidence=[
            *(observation(call) for call in mine[:16]),
            *(observation(call, "a peer called") for call in others[:4]),
            *(
                Evidence("progress", rank, _words_of_steps(divergence))
                for rank in culprits[:16]
                if divergence.told_by_steps
            ),
            *(
                Evidence("flight_recorder", rank, AWAY)
                for rank in divergence.away[:16]
                if rank not in graph.progressing
            ),
        ],
        advice=_ONE_GROUP_EACH if divergence.thread_turns else cause.advice,
    )


def _words_of_steps(divergence: Divergence) -> str:
    number = "fewer" if divergence.skipped else "more"
    return f"made {number} calls than its peers in one step of the job, as its steps tell"


def silent_findings(graph: WaitForGraph) -> list[Finding]:
    """Findings of calls with arguments that differ and that held nobody up: undefined results."""
    return [_silent_finding(divergence) for divergence in graph.silent_mismatches]


def _silent_finding(divergence: Divergence) -> Finding:
    cause = cause_of(divergence)
    # Where a vote is missing, even who differs from the rest is open.
    culprits = [] if divergence.undecided else [*divergence.deviating, *divergence.candidates]
    calls = divergence.calls
    mine = [calls[rank] for rank in culprits if rank in calls]
    others = [call for rank, call in calls.items() if rank not in culprits]
    first = mine[0] if mine else next(iter(calls.values()))
    peer = others[0] if others else first
    words = _summary(divergence, sorted(culprits or calls), first, peer)
    return Finding(
        status=Status.CORRUPT,
        category=cause.category,
        cause=cause,
        culprits=sorted(culprits),
        victims=[rank for rank in divergence.group.members if rank not in culprits],
        collective=collective_ref(peer),
        location=location(first) if culprits else None,
        confidence=_confidence(divergence),
        summary=f"{words} Nothing waits for it, and its results are undefined.",
        evidence=[
            *(observation(call) for call in mine[:16]),
            *(observation(call, "a peer called") for call in others[:4]),
        ],
        advice=cause.advice,
    )


def _confidence(divergence: Divergence) -> float:
    if not divergence.deviating:
        return TIED
    majority = 2 * len(divergence.deviating) < len(divergence.calls)
    return PROVED if majority else INFERRED


def _summary(divergence: Divergence, culprits: list[int], mine: Call, peer: Call) -> str:
    who = name_ranks(culprits)
    if not divergence.deviating:
        under = f"Under number {divergence.seq} of {name_group(divergence.group)}"
        what = WORDS[divergence.difference]
        if len(culprits) == 1:
            return f"{under} {who} does not call what its peers call ({what})."
        if divergence.contradicted:
            calls = _calls_by_side(list(divergence.calls.values()))
            return (
                f"{under} {calls}. Most speak against the few, and for these what all did there "
                "before, or what groups like theirs do."
            )
        return f"{under} {who} do not call the same ({what}){UNTOLD}."
    called = [call for rank, call in divergence.calls.items() if rank in culprits]
    if any(difference(mine, call, sites=False) for call in called):
        return (
            f"Under number {divergence.seq} of {name_group(divergence.group)} "
            f"{_calls_by_side(list(divergence.calls.values()))}: {who} do otherwise than most, "
            "and not all alike."
        )
    if divergence.thread_turns:
        return (
            f"Two threads of each rank use {name_group(divergence.group)}, and nothing orders "
            f"them: {who} called {name_call(mine)} before {name_call(peer)}, which its peers did "
            "the other way round."
        )
    if divergence.skipped and mine.op == peer.op:
        return (
            f"{who.capitalize()} left out {'its' if len(culprits) == 1 else 'their'} peers' "
            f"{name_call(peer)} and went on to the next {mine.op}."
        )
    if divergence.skipped:
        return f"{who.capitalize()} left out {name_call(peer)} and went on to {name_call(mine)}."
    if splits_of(mine.arguments) is not None and divergence.difference is Difference.SPLITS:
        return f"{who.capitalize()} gave {name_call(mine)} splits that do not fit its peers'."
    if mine.op != peer.op:
        return f"{who.capitalize()} called {name_call(mine)} where its peers called {peer.op}."
    if divergence.difference is Difference.OPERATION:
        return (
            f"{who.capitalize()} called {name_call(mine)} where its peers called another "
            f"{peer.op}: sizes and dtypes differ."
        )
    return (
        f"{who.capitalize()} called {name_call(mine)} with {WORDS[divergence.difference]} "
        "than its peers."
        if divergence.difference is not Difference.CALL_SITE
        else f"{who.capitalize()} called {name_call(mine)} from another line than its peers."
    )
