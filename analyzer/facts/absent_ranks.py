"""Ranks that their peers wait for and that are in no operation: which they are, and what they do.

The first label that the stack, the loops or the processor time of such a rank
proves is taken; where nothing is proved it is ``missing_rank``, which says no
more than that the others wait for it.
"""

from __future__ import annotations

from collections import Counter

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.call_wording import name_call
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.child_waits import child_wait
from hanglab.analyzer.facts.host_waits import final_holder, host_waits
from hanglab.analyzer.facts.interpreter_lock import gil_holder
from hanglab.analyzer.facts.loader_waits import queue_words, stuck_worker, worker_words
from hanglab.analyzer.facts.loop_decisions import not_for_input
from hanglab.analyzer.facts.loops import classify_left_loop, left_loops
from hanglab.analyzer.facts.program_ends import describe_program_end
from hanglab.analyzer.facts.python_waits import child_in_lock, fork_deadlock, python_wait
from hanglab.analyzer.facts.source_loops import is_condition_of_while
from hanglab.analyzer.facts.stack_position import StackPlace, main_thread, position_of
from hanglab.analyzer.facts.store_waits import words_for_key_of_nobody
from hanglab.analyzer.facts.thresholds import BUSY, PAUSES
from hanglab.analyzer.strengths import CANDIDATES, INFERRED, SEEN, SHOWN
from hanglab.analyzer.verdict import Cause, Location
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case.records import StackFrame


def absent_ranks(facts: CaseFacts) -> list[int]:
    """Ranks that their peers wait for, and that nothing shows inside an operation."""
    outside = [
        s.rank
        for s in facts.graph.sinks
        if (s.outside and not s.stopped_device) or (s.unknown and _stack_is_outside(facts, s.rank))
    ]
    if not outside and facts.stuck and not facts.graph.waits:
        # Nobody is inside an operation at all: whoever still lives is stuck by itself.  Where a
        # part of the ranks alone is seen, that takes proof.
        outside = [
            rank
            for rank, view in facts.ranks.items()
            if view.ended is None
            and (not facts.inputs.missing_ranks or _stack_is_outside(facts, rank))
        ]
    # Who waits for what a peer has is held up by that one, which may be awaited by nobody else;
    # but not where its peers are still in a loop that it left: it left them first.
    waits = host_waits(facts)
    left = {rank for rank in outside if rank in facts.ranks and left_loops(facts, rank)}
    return [
        rank
        for rank in sorted(left | {final_holder(waits, r) for r in outside if r not in left})
        if rank in facts.ranks
        and facts.ranks[rank].ended is None
        and facts.in_no_operation(rank)
        and facts.ranks[rank].position.place is not StackPlace.RENDEZVOUS
        and not _is_finishing(facts.ranks[rank])
        and (rank in left or rank not in waits)
    ]


def _stack_is_outside(facts: CaseFacts, rank: int) -> bool:
    """True if the stack of a rank without a buffer proves that it is in no operation.

    What torch does on the top of a stack may be communication that nothing else
    shows, a reduction of DistributedDataParallel for one.
    """
    view = facts.ranks.get(rank)
    if view is None or view.progress is None or view.captured_stack is None:
        return False
    if gil_holder(facts, view) is not None and _is_awaited_alone(facts, rank):
        # Were it inside with the others, they would be done.
        return True
    thread = main_thread(view.captured_stack)
    frames = [
        frame
        for frame in (thread.frames if thread is not None else [])
        if view.code.owner(frame.file) is not Owner.RECORDER
    ]
    if not frames:
        return False
    return (
        view.position.place is StackPlace.LOADER
        or view.code.owner(frames[0].file) is not Owner.TORCH
    )


def _is_awaited_alone(facts: CaseFacts, rank: int) -> bool:
    """True if all others whom somebody waits for are known to be inside an operation."""
    return not any(s.rank != rank and (s.outside or s.unknown) for s in facts.graph.sinks)


def _is_finishing(view: RankView) -> bool:
    """True if the rank is past its script and its interpreter is still at work to end."""
    return _exiting(view) and view.position.user is None and (computes(view) or view.state == "R")


def most_frequent_line(view: RankView) -> StackFrame | None:
    """The user's line that stands in most of the rank's samples."""
    lines: Counter[StackFrame] = Counter()
    for position in view.positions():
        if position.user is not None:
            lines[position.user] += 1
    return lines.most_common(1)[0][0] if lines else view.position.user


def classify(facts: CaseFacts, view: RankView) -> tuple[Cause, float, str, Location | None]:
    """Cause, confidence, what shows it, and the line."""
    position = view.position
    here = view.location()
    if left_loops(facts, view.rank) and facts.operations_behind(view.rank):
        cause, confidence, words, _ = classify_left_loop(facts, view.rank)
        told = not_for_input(facts, view.rank, left_loops(facts, view.rank))
        if cause is Cause.UNEVEN_INPUTS and told:
            cause, words = Cause.SKIPPED_COLLECTIVE, f"{words}; {told}"
        return cause, confidence, f"it has left the loop that its peers are in{words}", here
    if position.place is StackPlace.TEARDOWN or _exiting(view):
        inside = f", inside {position.inside}()" if position.inside else ""
        by, left = describe_program_end(view)
        after = f", having left{by}{name_line(left)}" if by else ""
        kept, by_thread = _thread_that_is_left(view)
        words = f"it is shutting down{inside}{after}{kept}"
        return Cause.TEARDOWN, SEEN, words, here or left or by_thread
    if position.place is StackPlace.LOADER:
        worker = stuck_worker(view)
        words, worker_line = worker_words(view, worker)
        words = f"it waits for its data loader{queue_words(view)}{words}"
        if worker is not None and child_in_lock(worker, view):
            words += ", in a lock, and has no other thread that could hold it"
            return Cause.FORK_DEADLOCK, INFERRED, words, worker_line or here
        return Cause.LOADER_STUCK, SHOWN, words, worker_line or here
    blocked = fork_deadlock(view)
    if blocked:
        return Cause.FORK_DEADLOCK, INFERRED, blocked, here
    held = gil_holder(facts, view)
    if held is not None:
        return Cause.GIL_HELD, SHOWN, held[0], held[1] or here
    waits = python_wait(view)
    if waits is not None:
        return Cause.PYTHON_DEADLOCK, waits[0], waits[1], here
    busy = _busy(facts, view)
    if busy:
        return Cause.BUSY_LOOP, *busy, view.location(most_frequent_line(view))
    child = child_wait(view)
    if child is not None:
        return Cause.MISSING_RANK, *child, here
    words = words_for_key_of_nobody(facts, view)
    if not words:
        call = facts.blocked(view.rank)
        words = "it is in no operation that is known"
        if call is not None:
            words = f"it waits meanwhile in {name_call(call)}"
    return Cause.MISSING_RANK, SEEN, words, here


def _thread_that_is_left(view: RankView) -> tuple[str, Location | None]:
    """Words and line of the one thread of the user's beside the main one, for which it may wait."""
    sample = view.captured_stack
    if sample is None or view.position.inside != "_shutdown":
        return "", None
    others = [(one, position_of(one, view.code).user) for one in sample.threads if not one.main]
    left = [(one, frame) for one, frame in others if frame is not None]
    if len(left) != 1:
        return "", None
    ((thread, frame),) = left
    line = view.location(frame)
    return f", while its thread {thread.name or 'without a name'} is{name_line(line)}", line


def _exiting(view: RankView) -> bool:
    """True if the rank is past its script."""
    return view.progress is not None and view.progress.phase == "exiting"


def _busy(facts: CaseFacts, view: RankView) -> tuple[float, str] | None:
    """Confidence that a rank polls for ever, and what shows it; None if it may do other work."""
    movement, line = view.movement, most_frequent_line(view)
    if movement is None or movement.cpu_share < BUSY or view.position.user is None:
        return None
    if movement.quiet_s < PAUSES * movement.longest_pause_s:
        return None
    mains = [thread for s in view.rank_stacks if (thread := main_thread(s)) is not None]
    words = f"it used {movement.cpu_share:.0%} of a core for {movement.quiet_s:.1f} s"
    if 2 * sum(thread.owns_gil for thread in mains) > len(mains):
        return SEEN, f"{words} without any progress"
    # Native code lets go of the GIL: without it a busy core may just be a long kernel.  What only
    # tells a state takes no such time, unless a device has yet to come to it.
    on_device = any(one.backend != "gloo" for one in view.groups)
    if line is not None and not on_device and is_condition_of_while(facts, line.file, line.line):
        return CANDIDATES, f"{words} at the condition of a loop that does nothing else"
    return None


def computes(view: RankView) -> bool:
    return view.movement is not None and view.movement.cpu_share >= BUSY
