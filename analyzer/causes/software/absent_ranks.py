"""A rank that stands outside communication while its peers wait for it: what it does instead.

The first label that its stack, its loops or its processor time proves is
taken; where nothing is proved it is ``missing_rank``, which says no more than
that the others wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.child_waits import child_wait
from hanglab.analyzer.facts.code_owners import Owner
from hanglab.analyzer.facts.departure_calls import describe_departure
from hanglab.analyzer.facts.idle_time import captured_early, is_unusually_idle, moved_recently
from hanglab.analyzer.facts.interpreter_lock import PAUSES, gil_holder
from hanglab.analyzer.facts.loader_waits import queue_words, stuck_worker
from hanglab.analyzer.facts.loops import classify_left_loop, left_loops
from hanglab.analyzer.facts.python_waits import fork_deadlock, nobody_works, python_wait
from hanglab.analyzer.facts.stack_position import Place, main_thread
from hanglab.analyzer.proposal import Order, Proposal, name_line, propose
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Location, Status
from hanglab.recorder.case.records import Frame

#: Share of one core above which a rank is busy rather than waiting.
BUSY = 0.8
#: A rank that has been away from its peers for less is in the middle of a step.
_WAITING_NS = 3_000_000_000
#: What a rank does not come back from where nothing in it works, however early somebody looks;
#: and what is left of the confidence, as the look may have met it in passing.
_FOR_EVER = frozenset({Cause.PYTHON_DEADLOCK, Cause.FORK_DEADLOCK})
_EARLY_PART = 0.75
#: What is said of those who are not where the others are: it takes more of the others.
_BY_MAJORITY = frozenset({Cause.MISSING_RANK, Cause.SKIPPED_COLLECTIVE})


def absent_ranks(facts: CaseFacts) -> list[int]:
    """Ranks that their peers wait for, and that nothing shows inside an operation."""
    outside = [
        s.rank
        for s in facts.graph.sinks
        if (s.outside and not s.stopped_device) or (s.unknown and _seen_outside(facts, s.rank))
    ]
    if not outside and facts.stuck and not facts.graph.waits:
        # Nobody is inside an operation at all: whoever still lives is stuck by itself.
        outside = [r for r, v in facts.ranks.items() if v.ended is None]
    return [
        rank
        for rank in sorted(outside)
        if rank in facts.ranks
        and facts.ranks[rank].ended is None
        and facts.stands_outside(rank)
        and facts.ranks[rank].position.place is not Place.RENDEZVOUS
        and not _winding_up(facts.ranks[rank])
    ]


def _seen_outside(facts: CaseFacts, rank: int) -> bool:
    """Whether the stack of a rank without a buffer proves that it is in no operation.

    What torch does on the top of a stack may be communication that nothing else
    shows, a reduction of DistributedDataParallel for one.
    """
    view = facts.ranks.get(rank)
    if view is None or view.progress is None or view.captured_stack is None:
        return False
    thread = main_thread(view.captured_stack)
    frames = [
        frame
        for frame in (thread.frames if thread is not None else [])
        if view.code.owner(frame.file) is not Owner.RECORDER
    ]
    if not frames:
        return False
    return view.position.place is Place.LOADER or view.code.owner(frames[0].file) is not Owner.TORCH


def _winding_up(view: RankView) -> bool:
    """Whether the rank is past its script and its interpreter is still at work to end."""
    return _exiting(view) and view.position.user is None and (_computes(view) or view.state == "R")


def _awaited(facts: CaseFacts, rank: int) -> tuple[CollectiveRef | None, list[int] | None, str]:
    """The operation that the peers wait in, the victims, and words for both."""
    sink = facts.sink(rank)
    if sink is None:
        return None, None, "nothing of the job moves"
    call = sink.awaited
    where = f"{call.op}" + (f" number {call.seq}" if call.seq is not None else "")
    group = call.group.description or call.group.name
    victims = sorted(sink.victims) if sink.victims else None
    return collective_ref(call), victims, f"its peers wait for it in {where} of group {group}"


def most_frequent_line(view: RankView) -> Frame | None:
    """The user's line that stands in most of the rank's samples."""
    lines: Counter[Frame] = Counter()
    for position in view.positions():
        if position.user is not None:
            lines[position.user] += 1
    return lines.most_common(1)[0][0] if lines else view.position.user


def classify(facts: CaseFacts, view: RankView) -> tuple[Cause, float, str, Location | None]:
    """Cause, confidence, what shows it, and the line."""
    position = view.position
    here = view.location()
    if left_loops(facts, view.rank) and facts.fell_short(view.rank):
        cause, confidence, words, _ = classify_left_loop(facts, view.rank)
        return cause, confidence, f"it has left the loop that its peers are in{words}", here
    if position.place is Place.TEARDOWN or _exiting(view):
        inside = f", inside {position.inside}()" if position.inside else ""
        by, left = describe_departure(view)
        after = f", having left{by}{name_line(left)}" if by else ""
        return Cause.TEARDOWN, 0.9, f"it is shutting down{inside}{after}", here or left
    if position.place is Place.LOADER:
        words, worker_line = stuck_worker(view)
        words = f"it waits for its data loader{queue_words(view)}{words}"
        return Cause.LOADER_STUCK, 0.95, words, worker_line or here
    blocked = fork_deadlock(view)
    if blocked:
        return Cause.FORK_DEADLOCK, 0.85, blocked, here
    held = gil_holder(facts, view)
    if held is not None:
        return Cause.GIL_HELD, 0.95, held[0], held[1] or here
    waits = python_wait(view)
    if waits is not None:
        return Cause.PYTHON_DEADLOCK, waits[0], waits[1], here
    busy = _busy(view)
    if busy:
        return Cause.BUSY_LOOP, 0.9, busy, view.location(most_frequent_line(view))
    child = child_wait(view)
    if child is not None:
        return Cause.MISSING_RANK, *child, here
    return Cause.MISSING_RANK, 0.9, "it is in no operation that is known", here


def _exiting(view: RankView) -> bool:
    """Whether the rank is past its script."""
    return view.progress is not None and view.progress.phase == "exiting"


def _busy(view: RankView) -> str:
    movement = view.movement
    if movement is None or movement.cpu_share < BUSY:
        return ""
    mains = [thread for s in view.rank_stacks if (thread := main_thread(s)) is not None]
    # Native code lets go of the GIL: without it a busy core may just be a long kernel.
    spins = [thread for thread in mains if thread.owns_gil]
    if (
        view.position.user is None
        or 2 * len(spins) <= len(mains)
        or movement.quiet_s < PAUSES * movement.longest_pause_s
    ):
        return ""
    return (
        f"it used {movement.cpu_share:.0%} of a core for {movement.quiet_s:.1f} s without "
        "any progress"
    )


def ranks_outside(facts: CaseFacts) -> Iterator[Proposal]:
    """One proposal per rank; arbitration merges those of one cause."""
    # What a rank without a stack does is not told here.
    told = {
        rank: classify(facts, facts.ranks[rank])
        for rank in absent_ranks(facts)
        if facts.ranks[rank].position.place is not Place.UNKNOWN or facts.ranks[rank].rank_stacks
    }
    many = _many_for_few(facts, [r for r, (cause, *_) in told.items() if cause in _BY_MAJORITY])
    for rank, (cause, confidence, words, location) in told.items():
        view = facts.ranks[rank]
        collective, victims, waiting = _awaited(facts, rank)
        status = Status.HUNG
        if _early(facts, view):
            if not _kept_waiting(facts, view):
                continue
            if cause in _FOR_EVER and is_unusually_idle(view) and nobody_works(view):
                confidence *= _EARLY_PART
            elif cause in (Cause.MISSING_RANK, Cause.BUSY_LOOP) and moved_recently(view):
                cause, confidence, status = Cause.RANK0_WORK, 0.8, Status.SLOW
                words = "it moves in work that only it does"
            elif (
                cause is Cause.LOADER_STUCK and moved_recently(view) and _kept_for_long(facts, rank)
            ):
                cause, confidence, status = Cause.SLOW_INPUT, 0.6, Status.SLOW
                words = "its input has kept it all the while, though it moves"
            else:
                continue  # neither that it moves nor that it never will is proved
        elif not facts.stuck:
            continue
        elif many and cause in _BY_MAJORITY:
            continue
        elif cause is Cause.MISSING_RANK and _left_alone(facts, rank):
            continue
        elif cause is Cause.MISSING_RANK and _computes(view):
            # One core is busy and nothing else is seen to move: long work and an
            # endless loop look alike, and only one of them is a fault.
            continue
        yield propose(
            facts,
            Order.OUTSIDE,
            cause,
            [rank],
            status=status,
            confidence=confidence,
            summary=f"Rank {rank} stands outside{name_line(location)}: {words}; {waiting}.",
            evidence=_seen(view, words, location),
            location=location,
            collective=collective,
            victims=victims,
        )


def _many_for_few(facts: CaseFacts, missing: list[int]) -> bool:
    """Whether more ranks stay away for no known reason than wait for them.

    Then the few may have gone ahead, called an operation too many, or hold what the many
    wait for: a lock on a file, a key that they did not set.  Where nobody waits in an
    operation nobody is missed.
    """
    waiting = {wait.call.rank for wait in facts.graph.waits} - set(missing)
    return len(missing) > max(1, len(waiting))


def _left_alone(facts: CaseFacts, rank: int) -> bool:
    """Whether all the others have come to their end well, so that nobody can miss the rank.

    It may rest for a reason of its own, an upload that goes on elsewhere for one.
    """
    others = facts.others(rank)
    done = (facts.ranks[other].ended for other in others)
    return (
        bool(others)
        and facts.sink(rank) is None
        and all(end is not None and end.code == 0 for end in done)
    )


def _computes(view: RankView) -> bool:
    return view.movement is not None and view.movement.cpu_share >= BUSY


def _early(facts: CaseFacts, view: RankView) -> bool:
    """Whether the job was captured before this rank had rested for as long as a hang takes."""
    if not captured_early(facts) or view.movement is None:
        return False
    limit = facts.job.hang_after_s if facts.job and facts.job.hang_after_s else 5.0
    return view.movement.quiet_s < limit


def _kept_waiting(facts: CaseFacts, view: RankView) -> bool:
    """Whether the rank's latest operation lies so long back that its peers really wait.

    Somebody who asks for a capture may do so in the middle of any step.
    """
    trigger, progress = facts.job.trigger if facts.job else None, view.progress
    if trigger is None or progress is None or not progress.operations:
        return True
    latest = max(
        max(o.entered_ns, o.returned_ns or 0, o.wait_returned_ns or 0) for o in progress.operations
    )
    return trigger.at.wall_ns - (latest - view.clock_ahead_ns) > _WAITING_NS


def _kept_for_long(facts: CaseFacts, rank: int) -> bool:
    """Whether a peer has waited for it for as long as a hang takes, and out of all proportion."""
    limit = facts.job.hang_after_s if facts.job and facts.job.hang_after_s else 5.0
    waiting = [facts.ranks.get(w.call.rank) for w in facts.graph.waits if w.call.rank != rank]
    return any(
        one.movement.quiet_s >= max(limit, PAUSES * one.movement.longest_pause_s)
        for one in waiting
        if one is not None and one.movement is not None
    )


def _seen(view: RankView, words: str, location: Location | None) -> list[Evidence]:
    evidence = [Evidence("stack", view.rank, words + name_line(location))]
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
