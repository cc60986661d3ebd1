"""Proposals for ranks that are in no operation while their peers wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.causes.thresholds import AWAY_NS, EARLY_PART
from hanglab.analyzer.facts.absent_ranks import absent_ranks, classify, computes
from hanglab.analyzer.facts.call_wording import name_group
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.host_waits import final_holder, host_waits, wait_evidence
from hanglab.analyzer.facts.idle_time import (
    captured_early,
    is_unusually_idle,
    moved_recently,
    ranks_that_wait_for_long,
)
from hanglab.analyzer.facts.polls import poll_frequency, poll_words, polls
from hanglab.analyzer.facts.python_waits import nobody_works
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Location, Status
from hanglab.analyzer.wording import name_line

#: What a rank does not come back from where nothing in it works, however early somebody looks;
#: and what is left of the confidence, as the look may have met it in passing.
_FOR_EVER = frozenset({Cause.PYTHON_DEADLOCK, Cause.FORK_DEADLOCK})
#: What is said of those who are not where the others are: it takes more of the others.
_BY_MAJORITY = frozenset({Cause.MISSING_RANK, Cause.SKIPPED_COLLECTIVE})


def _awaited(facts: CaseFacts, rank: int) -> tuple[CollectiveRef | None, list[int] | None, str]:
    """The operation that the peers wait in, the victims, and words for both."""
    sink = facts.sink(rank)
    if sink is None:
        return None, None, "nothing of the job moves"
    call = sink.awaited
    where = f"{call.op}" + (f" number {call.seq}" if call.seq is not None else "")
    victims = sorted(sink.victims) if sink.victims else None
    group = name_group(call.group)
    return collective_ref(call), victims, f"its peers wait for it in {where} of {group}"


@detector
def ranks_outside(facts: CaseFacts) -> Iterator[Proposal]:
    """One proposal per rank; arbitration merges those of one cause."""
    # What a rank without a stack does is not told here.
    told = {
        rank: classify(facts, facts.ranks[rank])
        for rank in absent_ranks(facts)
        if facts.ranks[rank].position.place is not StackPlace.UNKNOWN
        or facts.ranks[rank].rank_stacks
    }
    waits = host_waits(facts)
    many = _many_for_few(facts, [r for r, (cause, *_) in told.items() if cause in _BY_MAJORITY])
    for rank, (cause, confidence, words, location) in told.items():
        view = facts.ranks[rank]
        collective, victims, waiting = _awaited(facts, rank)
        status = Status.HUNG
        if _early(facts, view):
            if not _peers_really_wait(facts, view):
                continue
            if cause in _FOR_EVER and is_unusually_idle(view) and nobody_works(view):
                confidence *= EARLY_PART
            elif many and cause in _BY_MAJORITY:
                continue  # what most of the ranks do is no work of one, and the few may hold it up
            elif cause in (Cause.MISSING_RANK, Cause.BUSY_LOOP) and moved_recently(view):
                cause, confidence, status = Cause.RANK0_WORK, CONCLUDED, Status.SLOW
                words = "it moves in work that only it does"
            elif (
                cause is Cause.LOADER_STUCK
                and moved_recently(view)
                and set(ranks_that_wait_for_long(facts)) - {rank}
            ):
                cause, confidence, status = Cause.SLOW_INPUT, CANDIDATES, Status.SLOW
                words = "its input has kept it all the while, though it moves"
            else:
                continue  # neither that it moves nor that it never will is proved
        elif not facts.stuck:
            continue
        elif many and cause in _BY_MAJORITY:
            continue
        elif cause is Cause.MISSING_RANK and _left_alone(facts, rank):
            continue
        elif cause is Cause.MISSING_RANK and computes(view):
            # One core is busy and nothing else is seen to move: long work and an
            # endless loop look alike, and only one of them is a fault.
            continue
        if victims is not None:
            victims = sorted({*victims, *facts.graph.held_on_hosts([rank])})
        line = name_line(location)
        place = f" but{line}" if line and not words.endswith(line) else ""
        if cause is Cause.MISSING_RANK and (asked := polls(view)):
            words = f"it {poll_words(facts, asked[0])} ({poll_frequency(asked[0])})"
        yield propose(
            facts,
            cause,
            [rank],
            status=status,
            confidence=confidence,
            summary=f"Rank {rank} is not in "
            f"{'any collective' if facts.blocked(rank) is None else 'what its peers wait for,'}"
            f"{place}: {words}; {waiting}.",
            evidence=_seen(view, words, location)
            + wait_evidence(waits, [r for r in waits if final_holder(waits, r) == rank]),
            location=location,
            collective=collective,
            victims=victims,
        )


def _many_for_few(facts: CaseFacts, missing: list[int]) -> bool:
    """True if more ranks stay away for no known reason than wait for them.

    Then the few may have gone ahead, called an operation too many, or hold what the many
    wait for: a lock on a file, a key that they did not set.  Where nobody waits in an
    operation nobody is missed.
    """
    waiting = {wait.call.rank for wait in facts.graph.waits} - set(missing)
    return len(missing) > max(1, len(waiting))


def _left_alone(facts: CaseFacts, rank: int) -> bool:
    """True if all the others have come to their end well, so that nobody can miss the rank.

    It may rest for a reason of its own, an upload that goes on elsewhere for one.
    """
    others = facts.others(rank)
    done = (facts.ranks[other].ended for other in others)
    return (
        bool(others)
        and facts.sink(rank) is None
        and all(end is not None and end.code == 0 for end in done)
    )


def _early(facts: CaseFacts, view: RankView) -> bool:
    """True if the job was captured before this rank had rested for as long as a hang takes."""
    if not captured_early(facts) or view.movement is None:
        return False
    return view.movement.quiet_s < facts.hang_after_s


def _peers_really_wait(facts: CaseFacts, view: RankView) -> bool:
    """True if the rank's latest operation lies so long back that its peers really wait.

    Somebody who asks for a capture may do so in the middle of any step.
    """
    trigger, progress = facts.job.trigger if facts.job else None, view.progress
    if trigger is None or progress is None or not progress.operations:
        return True
    latest = max(
        max(o.entered_ns, o.returned_ns or 0, o.wait_returned_ns or 0) for o in progress.operations
    )
    return trigger.at.wall_ns - (latest - view.clock_ahead_ns) > AWAY_NS


def _seen(view: RankView, words: str, location: Location | None) -> list[Evidence]:
    line = name_line(location)
    # The words may end in the same line: that of a loader that runs in the rank itself.
    evidence = [Evidence("stack", view.rank, words.removesuffix(line) + line)]
    if view.movement is not None:
        evidence.append(
            Evidence(
                "progress",
                view.rank,
                f"nothing of it moved for {view.movement.quiet_s:.1f} s; its longest pause "
                f"before was {view.movement.longest_pause_s:.1f} s",
            )
        )
    sample = view.at_capture()
    if sample is not None and sample.wchan not in ("", "0"):
        evidence.append(
            Evidence("process_state", view.rank, f"state {sample.state}, kernel: {sample.wchan}")
        )
    return evidence
