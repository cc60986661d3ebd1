"""Proofs that a rank which left its peers' loop was told to, and not at the end of its input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.loops import Loop, counter_of
from hanglab.analyzer.facts.source_loops import (
    LoopEnd,
    ends_around,
    ends_within,
    handles_exceptions,
    loop_end,
)
from hanglab.analyzer.flight_recorder.columns import Frame


def not_for_input(facts: CaseFacts, rank: int, loops: Sequence[Loop]) -> str:
    """Words where the source proves that no want of input took the rank out of these loops.

    ``loops`` are those that it has left, innermost first; "" where nothing is proved.
    """
    if not loops:
        return ""
    outermost = loops[-1]
    last = loop_end(facts, outermost.frame.file, outermost.first)
    if last is None or not last.alike or last.may_lack_input:
        return ""
    if _may_be_left_by_an_exception(facts, rank, outermost):
        return ""
    if not last.exits:
        inner = (loop_end(facts, loop.frame.file, loop.first) for loop in loops[:-1])
        if all(map(_is_fixed, inner)) and all(map(_is_fixed, _inside(facts, outermost))):
            return f"the loop of line {outermost.first} has as many rounds on every rank"
        return ""
    if not _did_fewer_rounds(facts, rank, outermost):
        return ""
    lines = ", ".join(map(str, last.exits))
    return (
        f"it left the loop of line {outermost.first}, which has as many rounds on every rank, "
        f"before its end: by {'line' if len(last.exits) == 1 else 'one of lines'} {lines}"
    )


def line_that_may_fail(facts: CaseFacts, rank: int, loops: Sequence[Loop]) -> int | None:
    """Line at which a peer is within one of these loops, whose exceptions that loop handles.

    A rank may have come to the end of it with a round that it broke off.
    """
    return next(
        (
            frame.line
            for peer in facts.others(rank)
            for frame in facts.ranks[peer].program_frames
            for loop in loops
            if (frame.file, frame.function) == (loop.frame.file, loop.frame.function)
            and loop.first < frame.line <= loop.last
            and handles_exceptions(facts, frame.file, frame.line)
            and not handles_exceptions(facts, frame.file, loop.first)
        ),
        None,
    )


def _may_be_left_by_an_exception(facts: CaseFacts, rank: int, loop: Loop) -> bool:
    """True if a caller of the loop's function may have handled one and gone on to where it is.

    None of those did whose call the rank is still in.
    """
    view = facts.ranks[rank]
    here = {(frame.file, frame.line) for frame in view.program_frames}
    for caller in loop.callers:
        if (caller.file, caller.line) in here:
            return False
        user = view.code.owner(caller.file) is Owner.USER
        if user and handles_exceptions(facts, caller.file, caller.line) is not False:
            return True
    return False


def _is_fixed(end: LoopEnd | None) -> bool:
    return end is not None and end.alike and not end.exits and not end.may_lack_input


def _inside(facts: CaseFacts, loop: Loop) -> Iterator[LoopEnd | None]:
    """Loops within the loop: of its own function, and of those that it calls for an operation."""
    yield from ends_within(facts, loop.frame.file, loop.first)
    for frame in {frame for stack in _stacks(facts) for frame in _below(facts, stack, loop)}:
        yield from ends_around(facts, frame)


def _stacks(facts: CaseFacts) -> set[tuple[Frame, ...]]:
    """Stacks at which operations were called, innermost first."""
    found = set()
    for dump in facts.dumps.values():
        entries = dump.entries
        found |= {tuple(entries.stack_at(i)) for i in range(len(entries))} if entries else set()
    return found


def _below(facts: CaseFacts, stack: Sequence[Frame], loop: Loop) -> Sequence[Frame]:
    """The user's frames that a call from within the loop has below the loop's own."""
    code = next(iter(facts.ranks.values())).code
    for depth, frame in enumerate(stack):
        if frame.file == loop.frame.file and loop.first <= frame.line <= loop.last:
            return [one for one in stack[:depth] if code.owner(one.file) is Owner.USER]
    return []


def _did_fewer_rounds(facts: CaseFacts, rank: int, loop: Loop) -> bool:
    mine = counter_of(facts.ranks[rank], loop)
    peers = [
        count
        for peer in facts.others(rank)
        if (count := counter_of(facts.ranks[peer], loop)) is not None
    ]
    return mine is not None and bool(peers) and mine < min(peers)
