"""Ranks that are in one more round of a loop that all their peers have left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.loops import (
    Loop,
    delivered,
    left_loops,
    loops_around,
    made_calls_in,
    same_loop,
    steps_compared,
)
from hanglab.analyzer.facts.source_loops import loop_end
from hanglab.analyzer.strengths import CONCLUDED, PLAUSIBLE
from hanglab.analyzer.wording import MORE_INPUT, name_ranks

#: How iterators say that nothing is left: whoever handles it has come to the end of its input.
END_OF_INPUT = frozenset({"StopIteration", "StopAsyncIteration"})


@dataclass(frozen=True)
class FurtherRounds:
    """Rounds that some ranks did more than their peers: words, and how strongly that is shown."""

    words: str
    strength: float


def further_rounds(
    facts: CaseFacts, ranks: Collection[int], peers: Collection[int]
) -> FurtherRounds | None:
    """Rounds of ``ranks`` that ``peers`` at the end of their input do not have; None if unknown.

    By their loaders, or by a loop that each of them is in and every peer has left, which may have
    other numbers of rounds on each rank.
    """
    if not ranks or not peers or not {*ranks, *peers} <= facts.ranks.keys():
        return None
    mine, theirs = ([facts.ranks[rank] for rank in some] for some in (ranks, peers))
    return _by_loaders(mine, theirs) or _by_loops(facts, mine, theirs)


def more_rounds(ranks: Sequence[int], peers: Sequence[int], more: FurtherRounds) -> str:
    """A sentence that tells the rounds."""
    one = len(ranks) == 1
    return (
        f"{name_ranks(ranks).capitalize()} {'has' if one else 'have'} {MORE_INPUT} "
        f"{name_ranks(peers)}, who have left the loop that {'it is' if one else 'they are'} in "
        f"({more.words}); {'its' if one else 'their'} next operation meets the wrong one of theirs."
    )


def _by_loaders(mine: list[RankView], theirs: list[RankView]) -> FurtherRounds | None:
    ours, peers = [_taken(view) for view in mine], [_taken(view) for view in theirs]
    known = [one for one in peers if one is not None]
    # What a killed rank did last may not have been added up yet, nor that its loader ended.
    whole = [
        one for view, one in zip(theirs, peers, strict=True)
        if one is not None and (one[1] or not _was_killed(view))
    ]  # fmt: skip
    if not whole or None in ours:
        return None
    for one in ours:
        if (
            one is None
            or any(one[0] <= count for count, _ in known)
            or any(one[1] >= ends for _, ends in whole)
        ):
            return None
    least = min(one[0] for one in ours if one is not None)
    most = max(count for count, _ in known)
    # Nor need its last batch have been written down.
    strength = CONCLUDED if len(whole) == len(known) else PLAUSIBLE
    return FurtherRounds(f"{least} batches, where its peers' loaders ended after {most}", strength)


def _was_killed(view: RankView) -> bool:
    return view.ended is not None and (view.ended.signal is not None or view.ended.vanished)


def _taken(view: RankView) -> tuple[int, int] | None:
    """Batches that the rank's loaders gave it, and how often one had no more to give."""
    batches = delivered(view)
    if batches is None or view.progress is None:
        return None
    asked = sum(one.count for one in view.progress.section_totals if one.kind == "input")
    # Whoever is killed may have asked once more than was written down.
    return (batches, asked - batches) if asked >= batches else None


def _by_loops(
    facts: CaseFacts, mine: list[RankView], theirs: list[RankView]
) -> FurtherRounds | None:
    around = [loops_around(view) for view in mine]
    told = []
    for peer in theirs:
        left = [
            loop
            for loop in left_loops(facts, peer.rank)
            if all(any(same_loop(loop, one) for one in loops) for loops in around)
        ]
        left = [loop for loop in left if not _is_passed_over(facts, peer.rank, mine, loop)]
        if not left or all(_is_alike(facts, loop) for loop in left):
            return None
        compared = steps_compared(facts, peer.rank, left)
        if compared is not None and compared[0] >= 0:
            return None
        told.append(compared)
    counted = told[0]
    if counted is None or None in told:
        return FurtherRounds("by the operations that it did there", PLAUSIBLE)
    return FurtherRounds(f"{name_ranks([theirs[0].rank])} reached {counted[1]}", CONCLUDED)


def _is_passed_over(facts: CaseFacts, rank: int, others: Sequence[RankView], loop: Loop) -> bool:
    """True if a rank that stands behind a loop never was in it, by the calls of those who are.

    A branch that it did not take may lead there: its peers have no more rounds, but a call.
    """
    return not made_calls_in(facts, rank, loop) and any(
        made_calls_in(facts, other.rank, loop) for other in others
    )


def _is_alike(facts: CaseFacts, loop: Loop) -> bool:
    """True if the source gives the loop as many rounds on every rank."""
    end = loop_end(facts, loop.frame.file, loop.first)
    return end is not None and end.alike and not end.may_lack_input


def at_the_end_of_input(view: RankView) -> bool:
    """True if its main thread handles that an iterator had nothing more to give."""
    return any(one.main and one.type in END_OF_INPUT for one in view.pending)
