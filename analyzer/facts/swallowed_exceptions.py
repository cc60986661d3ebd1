"""Exceptions that a rank handles or survived, where they are why it left an operation out.

Training code prints tracebacks of errors that it handles well.  One is the root
of a hang only if the rank is the one that its peers wait for or that broke the
order, and either the exception left the very function that should have entered
the missing operation, or the rank entered nothing between the exception and the
place where it went wrong.  What healthy peers printed as well, and what the rank
itself survived before, is noise.  One that the rank still handles, in a clause or
context manager that goes on to an operation, need not have been printed: then it is the
root as well if its peers are in the same function, beyond the line that raised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hanglab.analyzer.facts.absent_ranks import classify
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.further_rounds import END_OF_INPUT
from hanglab.analyzer.facts.thresholds import REPEATED_PRINT_NS
from hanglab.analyzer.logs.tracebacks import printed_tracebacks
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED, INFERRED, SEEN, SHOWN
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.records import StackFrame

#: What a rank outside may be called for an exception to say more.
_WEAKER = frozenset({Cause.MISSING_RANK, Cause.SKIPPED_COLLECTIVE, Cause.UNEVEN_INPUTS})

#: What ends a rank, or a generator of it, because somebody wants it to end.
_ASKED_FOR = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})


@dataclass(frozen=True)
class HandledException:
    """A handled exception; ``frames`` innermost first, ``at_ns`` None where nobody timed it."""

    type: str
    message: str
    frames: tuple[StackFrame, ...]
    at_ns: int | None = None
    confidence: float = 0.0
    #: True where the rank's main thread was handling it still.
    pending: bool = False


def swallowed_exception(facts: CaseFacts, view: RankView) -> HandledException | None:
    """The handled exception that explains what the rank did, or None."""
    calls = _missed(facts, view)
    if calls is None or view.failed or view.state in ("T", "D"):
        return None
    if view.ended is None and facts.in_no_operation(view.rank) and _is_sink(facts, view.rank):
        if classify(facts, view)[0] not in _WEAKER:
            return None
    past = _handled_exceptions(view)
    for place in reversed(range(len(past))):
        one = past[place]
        if _is_common(facts, view, one):
            continue
        confidence = _confidence(facts, view, one, calls)
        if confidence < SEEN and any(_came_before(one, earlier) for earlier in past[:place]):
            continue
        if confidence:
            return replace(one, confidence=confidence)
    return None


def _handled_exceptions(view: RankView) -> list[HandledException]:
    """All that the rank printed and survived, those without a time first; then what it handles."""
    timed = [
        HandledException(one.type, one.message, tuple(one.frames), one.at.wall_ns)
        for one in view.handled
    ]
    printed = [
        HandledException(p.type, p.message, p.frames) for p in printed_tracebacks(view.stderr)
    ]
    pending = [
        HandledException(one.type, one.message, tuple(one.frames), pending=True)
        for one in view.pending
        if one.main and one.type not in END_OF_INPUT
    ]
    found = [p for p in printed if not any(_same(p, t) for t in timed)] + timed + pending
    return [one for one in found if one.type not in _ASKED_FOR]


def _same(a: HandledException, b: HandledException) -> bool:
    return a.type.rpartition(".")[2] == b.type.rpartition(".")[2] and _place(a) == _place(b)


def _came_before(one: HandledException, earlier: HandledException) -> bool:
    """True if the rank survived the same before; one that is printed twice is one."""
    if not _same(one, earlier):
        return False
    if one.at_ns is None or earlier.at_ns is None:
        return True
    return one.at_ns - earlier.at_ns > REPEATED_PRINT_NS


def _place(one: HandledException) -> tuple[str, int] | None:
    return (one.frames[0].file, one.frames[0].line) if one.frames else None


def _is_sink(facts: CaseFacts, rank: int) -> bool:
    sink = facts.sink(rank)
    return sink is not None and sink.outside


def _missed(facts: CaseFacts, view: RankView) -> list[Call] | None:
    """Peers' calls that the rank should have joined; None where it is no suspect."""
    rank = view.rank
    found: list[Call] = []
    for divergence in facts.graph.divergences:
        if rank in (divergence.deviating or divergence.candidates):
            found += [call for r, call in divergence.calls.items() if r != rank]
    for cycle in facts.graph.cycles:
        if rank in (cycle.deviating or cycle.candidates):
            found += [call for call in cycle.calls if call.rank != rank]
    for departure in facts.graph.departures:
        if rank == departure.rank and not departure.tied and departure.instead is not None:
            found.append(departure.instead)
    for unmatched in facts.graph.unmatched:
        if rank in unmatched.deviating and rank != unmatched.call.rank:
            found.append(unmatched.call)
    if _is_sink(facts, rank):
        found += [wait.call for wait in facts.graph.waits if rank in wait.on]
        return found
    if view.ended is not None and facts.operations_behind(rank) > 0:
        return found
    return found or None


def _is_common(facts: CaseFacts, view: RankView, one: HandledException) -> bool:
    """True if a peer that nothing is held against printed the same."""
    return any(
        _same(one, theirs)
        for rank, peer in facts.ranks.items()
        if rank != view.rank and _missed(facts, peer) is None
        for theirs in _handled_exceptions(peer)
    )


def _confidence(
    facts: CaseFacts, view: RankView, one: HandledException, calls: list[Call]
) -> float:
    if _left_the_call(facts, view, one, calls):
        return SHOWN if one.pending or one.at_ns is not None else INFERRED
    if one.pending:
        return CONCLUDED if _peers_went_on(facts, view, one, calls) else 0.0
    if one.at_ns is not None:
        return CONCLUDED if _nothing_since(facts, view, one.at_ns) else 0.0
    # Nobody timed anything: the last words of a rank that is in no operation.
    last = printed_tracebacks(view.stderr)[-1:]
    mine = bool(last) and last[0].frames == one.frames and not view.handled
    return CANDIDATES if mine and _is_sink(facts, view.rank) else 0.0


def _left_the_call(
    facts: CaseFacts, view: RankView, one: HandledException, calls: list[Call]
) -> bool:
    """True if the exception unwound a function in which peers make the calls missed."""
    unwound = {(f.file, f.function) for f in view.code.user_frames(one.frames[:-1])}
    making = {(file, function) for file, function, _ in _places_of_peers(facts, view, calls)}
    # Functions that the rank is in now, or again, were not left for good.
    here = {(f.file, f.function) for f in view.position.users}
    return bool(unwound & (making - here)) or bool(
        unwound & making and not _is_sink(facts, view.rank)
    )


def _places_of_peers(
    facts: CaseFacts, view: RankView, calls: list[Call]
) -> set[tuple[str, str, int]]:
    """File, function and line of the frames in which peers made, or make, the calls missed."""
    places: set[tuple[str, str, int]] = set()
    for call in calls:
        places |= {(f.file, f.function, f.line) for f in view.code.user_frames(call.stack)}
        peer = facts.ranks.get(call.rank)
        if peer is not None and peer.ended is None:
            places |= {(f.file, f.function, f.line) for f in peer.position.users}
    return places


def _peers_went_on(
    facts: CaseFacts, view: RankView, one: HandledException, calls: list[Call]
) -> bool:
    """True if peers are in the function that handles it, at or beyond the line that raised.

    They are where the rank would be without it.
    """
    if not one.frames:
        return False
    handling = one.frames[-1]
    place = handling.file, handling.function
    here = {f.line for f in view.position.users if (f.file, f.function) == place}
    lines = {line for *where, line in _places_of_peers(facts, view, calls) if tuple(where) == place}
    return bool(here) and any(line >= handling.line and line not in here for line in lines)


def _nothing_since(facts: CaseFacts, view: RankView, at_ns: int) -> bool:
    """True if the rank entered no operation from then until the one in which it went wrong."""
    until: int | None = None
    for divergence in facts.graph.divergences:
        call = divergence.calls.get(view.rank)
        if call is not None and call.created_ns is not None:
            until = min(until or call.created_ns, call.created_ns)
    if until is not None and at_ns > until:
        return False
    dump = facts.dumps.get(view.rank)
    if dump is None or dump.entries is None:
        return False
    created = dump.entries.created_ns
    later = created > at_ns
    if until is not None:
        later &= created < until
    return not bool(later.any())
