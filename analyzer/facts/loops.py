"""Loops that a rank has left while its peers are in them, and the steps it did until then.

The recorder writes, for the user code that stood on a rank's stacks, where its
loops begin and end and what their counters were (``code.json``).  Lines and
counters are compared between the same places of the same file only; no name
decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.code_order import comes_before
from hanglab.analyzer.facts.loop_rounds import rounds_begun
from hanglab.analyzer.facts.source_loops import loop_end
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.facts.thresholds import FEWEST_STEPS
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.analyzer.strengths import ALTERNATIVE, PLAUSIBLE, SEEN, SHOWN
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case import layout
from hanglab.recorder.case.records import CodeLoop, CodeShape, StackFrame


@dataclass(frozen=True)
class Loop:
    """A loop that a rank stands in, and the frame that stands there."""

    frame: StackFrame
    first: int
    last: int
    counter: int | None
    #: Frames around the loop's function, innermost first.
    callers: tuple[StackFrame, ...]


def loops_around(view: RankView) -> list[Loop]:
    """Loops that enclose the lines on the rank's stack, innermost function first."""
    loops: list[Loop] = []
    frames = view.program_frames
    for depth, frame in enumerate(frames):
        for shape in view.shapes:
            if not _stands_in(frame, shape):
                continue
            for loop in sorted(shape.loops, key=lambda one: one.last - one.first):
                if loop.first <= frame.line <= loop.last:
                    counter = _counter(view, shape, loop)
                    loops.append(Loop(frame, loop.first, loop.last, counter, frames[depth + 1 :]))
    return loops


def _counter(view: RankView, shape: CodeShape, loop: CodeLoop) -> int | None:
    """The loop's integer, where it counts its turns; None where it may be anything.

    Of an iterator of the program's own it has to be the step that the rank has marked, or as many
    as the calls that it has made from a line of the loop.
    """
    progress = view.progress
    if loop.counts or loop.counter is None or progress is None:
        return loop.counter if loop.counts else None
    if progress.step == loop.counter:
        return loop.counter
    calls = Counter(
        one.line
        for one in progress.operations
        if one.file == shape.file and loop.first <= one.line <= loop.last
    )
    whole = progress.operations_total <= len(progress.operations)
    # It counts from 0 or from 1, and has made the call of this turn or has yet to make it.
    told = (abs(n - loop.counter) <= 1 for n in calls.values() if n >= FEWEST_STEPS)
    return loop.counter if whole and any(told) else None


def _bare(function: str) -> str:
    """A function's name without its class, which only some stacks tell."""
    return function.rpartition(".")[2]


def _stands_in(frame: StackFrame, shape: CodeShape) -> bool:
    same = shape.file == frame.file and _bare(shape.function) == _bare(frame.function)
    return same and shape.encloses(frame.line)


def handled_signals(view: RankView) -> list[str]:
    """Signals in whose handler the rank's main thread stands."""
    return [
        name
        for shape in view.shapes
        for name in shape.signals
        if any(_stands_in(frame, shape) for frame in view.program_frames)
    ]


def _same_code(a: StackFrame | Frame, b: StackFrame) -> bool:
    return a.file == b.file and _bare(a.function) == _bare(b.function)


def _has_left(frames: tuple[StackFrame, ...], loop: Loop) -> bool:
    """True if a stack stands behind ``loop``: after it in its function, or in a later call."""
    for frame in frames:
        if _same_code(frame, loop.frame):
            return frame.line > loop.last
    for caller in loop.callers:
        for frame in frames:
            if _same_code(frame, caller):
                return frame.line > caller.line
    # No function around the loop is on the stack: that is another thread, or another program.
    return False


def same_loop(one: Loop, other: Loop) -> bool:
    """True if two ranks' loops are the same lines of the same code."""
    return _same_code(one.frame, other.frame) and (one.first, one.last) == (other.first, other.last)


def made_calls_in(facts: CaseFacts, rank: int, loop: Loop) -> bool:
    """True if a call of the rank that is on record came from within the loop."""
    view, dump = facts.ranks[rank], facts.dumps.get(rank)
    seen = view.progress.operations if view.progress is not None else []
    frames = [Frame(one.function, one.file, one.line) for one in seen if one.file]
    for stack in dump.entries.stacks if dump is not None and dump.entries is not None else []:
        frames += stack
    return any(
        _same_code(frame, loop.frame) and loop.first <= frame.line <= loop.last for frame in frames
    )


def is_past(view: RankView, loop: Loop) -> bool:
    """True if the rank stands further down in the very function of the loop."""
    mine = next((f for f in view.program_frames if _same_code(f, loop.frame)), None)
    return mine is not None and mine.line > loop.last


def passes(view: RankView, loop: Loop) -> int:
    """Times that the rank has passed the loop, by its operations at one line in there.

    No more than the boundary's ring remembers.  The loop's first line may call what is
    looped over, once for all passes.
    """
    lines: Counter[int] = Counter()
    for operation in view.progress.operations if view.progress else []:
        if (
            operation.file == loop.frame.file
            and _bare(operation.function) == _bare(loop.frame.function)
            and loop.first < operation.line <= loop.last
        ):
            lines[operation.line] += 1
    return max(lines.values(), default=0)


def left_loops(facts: CaseFacts, rank: int) -> list[Loop]:
    """Loops that a waiting peer is in and that ``rank`` stands behind, innermost first.

    One that the peer only waits in, for what it issued before, is none: the rank did not
    leave out a round of that.
    """
    view = facts.ranks[rank]
    calls = {wait.call.rank: wait.call for wait in facts.graph.waits if wait.call.rank != rank}
    waiting = {*calls, *(r for r, v in facts.ranks.items() if v.failed and r != rank)}
    peers = waiting or set(facts.others(rank))
    for peer in sorted(peers & facts.ranks.keys()):
        left = _left_of(view, facts.ranks[peer])
        left = [one for one in left if peer not in calls or not _outside(calls[peer].stack, one)]
        if left:
            return left
    return []


def others_behind(facts: CaseFacts, rank: int, loops: Sequence[Loop]) -> bool:
    """True if another rank stands behind the loops that ``rank`` has left, too."""
    stacks = (facts.ranks[peer].program_frames for peer in facts.others(rank))
    return any(all(_has_left(frames, loop) for loop in loops) for frames in stacks if frames)


def _outside(stack: Sequence[Frame], loop: Loop) -> bool:
    """True if a call was made from the loop's function, and not from within the loop."""
    of_function = [frame for frame in stack if _same_code(frame, loop.frame)]
    return bool(of_function) and not any(loop.first <= f.line <= loop.last for f in of_function)


def _left_of(view: RankView, peer: RankView) -> list[Loop]:
    """Loops around ``peer`` that the rank stands behind; none where their rounds differ.

    Who is merely a round behind in a loop around both comes to the inner one once more,
    and what it counted there belongs to another round than what its peer counts.
    """
    frames = () if view.ended is not None and not view.failed else view.program_frames
    if not frames and view.ended is None and view.position.place is not StackPlace.TEARDOWN:
        return []
    around = loops_around(peer)
    left = [loop for loop in around if not frames or _has_left(frames, loop)]
    shared = [loop for loop in around if loop not in left]
    return left if all(together(view, peer, loop) for loop in shared) else []


def counter_of(view: RankView, loop: Loop) -> int | None:
    """The counter that this rank's own stack still holds for the same loop.

    None where its function was called from elsewhere, as the loop of another phase is.
    """
    for shape in view.shapes:
        if _stands_in(loop.frame, shape) and _is_called_alike(view, loop, shape):
            for mine in shape.loops:
                if (mine.first, mine.last) == (loop.first, loop.last):
                    return _counter(view, shape, mine)
    return None


def _is_called_alike(view: RankView, loop: Loop, shape: CodeShape) -> bool:
    """True if a rank came to the loop's function by the same lines."""
    frames = view.program_frames
    here = next((at for at, frame in enumerate(frames) if _stands_in(frame, shape)), None)
    return here is None or [(one.file, one.line) for one in frames[here + 1 :]] == [
        (one.file, one.line) for one in loop.callers
    ]


def together(view: RankView, peer: RankView, loop: Loop) -> bool:
    """True if both are in the same iteration of a loop.

    Else one of them may be about to come to an inner loop that it has left once more.
    """
    mine = counter_of(view, loop)
    if mine is None and view.failed and not view.shapes:
        return _comes_next(view, peer)
    return mine is not None and mine == counter_of(peer, loop)


def _comes_next(view: RankView, peer: RankView) -> bool:
    """True if a peer has made the call in which a rank died as often as that one had before.

    Of a rank that died without a word nothing tells the iteration but what it did in it.
    """
    if not (_remembers_all(view) and _remembers_all(peer)):
        return False
    last = view.progress.operations[-1] if view.progress is not None else None
    if last is None or not last.file:
        return False
    mine, theirs = (
        sum((one.file, one.line) == (last.file, last.line) for one in progress.operations)
        for progress in (view.progress, peer.progress)
        if progress is not None
    )
    return mine == theirs + 1


def _remembers_all(view: RankView) -> bool:
    """True if the boundary's ring holds every call that the rank has made there, if any."""
    progress = view.progress
    return progress is not None and progress.operations_total <= len(progress.operations)


def further_on(view: RankView, peer: RankView, whose: str = "its peers'") -> str | None:
    """Words for the place of a rank that is further on in the program than its peer.

    None where it is not, or where the counter of a loop around both is unknown.  ``whose`` is the
    place that it is compared with.
    """
    around = loops_around(peer)
    for loop in reversed(loops_around(view)):
        other = next((one for one in around if same_loop(one, loop)), None)
        if other is None:
            continue
        if loop.counter is None or other.counter is None:
            if not _drew_as_many(view, peer):
                return None
            continue
        if loop.counter != other.counter:
            words = f"a later iteration (loop counter {loop.counter}, {whose} {other.counter})"
            return words if loop.counter > other.counter else None
    pairs = zip(reversed(view.program_frames), reversed(peer.program_frames), strict=False)
    for mine, theirs in pairs:
        if not _same_code(mine, theirs):
            return None
        if mine.line != theirs.line:
            shapes = [shape for shape in view.shapes if _stands_in(mine, shape)]
            later = any(comes_before(shape, theirs.line, mine.line) for shape in shapes)
            return f"a later line (line {mine.line}, {whose} {theirs.line})" if later else None
    return None


def have_one_part(view: RankView, peer: RankView) -> bool:
    """True if two ranks stand in the same functions up to where their stacks part."""
    pairs = zip(reversed(view.program_frames), reversed(peer.program_frames), strict=False)
    parted = next(((mine, theirs) for mine, theirs in pairs if mine != theirs), None)
    return parted is None or _same_code(*parted)


def _drew_as_many(view: RankView, peer: RankView) -> bool:
    """True if the loaders of both handed out equally many batches: they are in the same step."""
    mine = delivered(view)
    return mine is not None and mine == delivered(peer)


def delivered(view: RankView) -> int | None:
    """Batches that the rank's loaders handed out; None where nobody counted them all."""
    progress = view.progress
    if progress is None or not 0 < len(progress.batches) < layout.BATCHES.capacity:
        return None
    return len(progress.batches)


def _fetches_in(view: RankView, loop: Loop) -> bool:
    """True if a loop of the user's may be the one that asks the loader for batches."""
    if view.code.owner(loop.frame.file) is not Owner.USER:
        return False
    asked = [line for line in view.lines if line.below == "input"]
    return not asked or any(
        line.file == loop.frame.file
        and _bare(line.function) == _bare(loop.frame.function)
        and loop.first <= line.line <= loop.last
        for line in asked
    )


def _compare(mine: int, peers: list[int]) -> int:
    """Negative: fewer than any peer.  Zero: as many as the least of them."""
    return mine - min(peers)


def steps_compared(facts: CaseFacts, rank: int, loops: Sequence[Loop]) -> tuple[int, str] | None:
    """Steps that the rank did fewer (negative) or more than its peers, and what counted them.

    None where nothing counts steps.
    """
    view = facts.ranks[rank]
    # Those that finished as well say nothing about the loop that the others are in.
    others = [v for r, v in facts.ranks.items() if r != rank and (v.ended is None or v.failed)]
    # Nor do those who have left it, too, or are in another round of what is around it.
    others = [v for v in others if _left_of(view, v)] or others
    mine_steps = view.progress.step if view.progress else -1
    peer_steps = [v.progress.step for v in others if v.progress and v.progress.step >= 0]
    if mine_steps >= 0 and peer_steps:
        return _compare(mine_steps, peer_steps), (
            f"step {mine_steps}, its peers step {min(peer_steps)}"
        )
    counted: tuple[int, str] | None = None
    for loop in reversed(loops):
        # From the outermost in, as epochs come before their steps.
        mine = counter_of(view, loop)
        peers = [c for v in others if (c := counter_of(v, loop)) is not None]
        if mine is None or not peers:
            # As many epochs say nothing of the steps in the last of them.
            counted = None
            continue
        counted = _compare(mine, peers), f"loop counter {mine}, its peers' {min(peers)}"
        if counted[0]:
            break
    if counted is None:
        counted = _within_a_step(view, others, loops) or _by_rounds(facts, view, others, loops)
    if counted is not None:
        return counted
    fetching = [v for v in others if any(_fetches_in(v, loop) for loop in loops)]
    return _compare_batches(view, fetching)


def _by_rounds(
    facts: CaseFacts, view: RankView, others: Sequence[RankView], left: Sequence[Loop]
) -> tuple[int, str] | None:
    """As :func:`steps_compared`, by the rounds that were recorded, from the outermost loop in.

    A loop that has as many rounds on every rank each time counts how often it was come to.
    """
    counted: tuple[int, str] | None = None
    for loop in reversed(left):
        file, line = loop.frame.file, loop.first
        end = loop_end(facts, file, line)
        if end is not None and end.alike:
            continue
        mine = rounds_begun(view, file, line)
        peers = [n for v in others if (n := rounds_begun(v, file, line)) is not None]
        if mine is None or not peers:
            return None
        words = f"{mine} rounds of the loop of line {line}, its peers {min(peers)} or more"
        counted = _compare(mine, peers), words
        if counted[0]:
            break
    return counted


def _within_a_step(
    view: RankView, others: Sequence[RankView], left: Sequence[Loop]
) -> tuple[int, str] | None:
    """As :func:`steps_compared`, of loops left within one step of a loop around them.

    That is one with as many iterations as the optimizer has made steps.
    """
    for peer in others:
        for loop in loops_around(peer):
            mine, theirs = counter_of(view, loop), counter_of(peer, loop)
            if loop in left or mine is None or mine != theirs or mine < FEWEST_STEPS:
                continue
            if all(_updates(one) in (mine, mine + 1) for one in (view, peer)):
                return 0, f"step {mine} by the optimizer's steps, its peers the same"
    return None


def _updates(view: RankView) -> int:
    totals = view.progress.section_totals if view.progress is not None else []
    return sum(total.count for total in totals if total.kind == "update")


def batches_compared(facts: CaseFacts, rank: int, loop: Loop) -> tuple[int, str] | None:
    """Like :func:`steps_compared`, by the batches alone that the loop asks its loaders for."""
    others = [v for r, v in facts.ranks.items() if r != rank and (v.ended is None or v.failed)]
    return _compare_batches(facts.ranks[rank], [v for v in others if _fetches_in(v, loop)])


def _compare_batches(view: RankView, others: Sequence[RankView]) -> tuple[int, str] | None:
    mine = delivered(view)
    peers = [b for v in others if (b := delivered(v)) is not None]
    if mine is None or not peers:
        return None
    return mine - min(peers), f"{mine} batches, its peers {min(peers)} or more"


def _lines_in_loop(facts: CaseFacts, rank: int, loop: Loop) -> list[int]:
    """Lines of the loop that issued the rank's operations, in their order."""
    dump = facts.dumps.get(rank)
    if dump is None or dump.entries is None:
        return []
    entries = dump.entries
    lines: list[int] = []
    for i in range(len(entries)):
        at = [
            f.line
            for f in entries.stack_at(i)
            if f.file == loop.frame.file and f.function == loop.frame.function
        ]
        if at and loop.first <= at[0] <= loop.last:
            lines.append(at[0])
    return lines


def _operations_per_iteration(lines: Sequence[int]) -> int | None:
    """Operations that a loop issues per iteration, by how often one of its lines returns."""
    once = lines.count(lines[0]) if len(lines) >= 4 else 0
    return round(len(lines) / once) if once else None


def _lacks_whole_iterations(lines: Sequence[int], short: int) -> bool:
    """True if the first of a peer's latest operations, which a rank lacks, begins an iteration."""
    return 0 < short < len(lines) and lines[-short] <= lines[-short - 1]


def _peers_are_in_no_loop(facts: CaseFacts, rank: int) -> bool:
    """True if all that wait, or lost the rank, stand in code that is known to have no loop there.

    Nor has any function that called it.
    """
    waiting = {wait.call.rank for wait in facts.graph.waits}
    waiting |= {peer for peer, view in facts.ranks.items() if view.failed}
    views = [facts.ranks[peer] for peer in waiting - {rank} if peer in facts.ranks]
    return bool(views) and all(_is_in_straight_code(view) for view in views)


def _is_in_straight_code(view: RankView) -> bool:
    frames = view.code.user_frames(view.program_frames)
    known = all(any(_stands_in(frame, shape) for shape in view.shapes) for frame in frames)
    return bool(frames) and known and not loops_around(view)


def classify_left_loop(
    facts: CaseFacts, rank: int
) -> tuple[Cause, float, str, list[tuple[Cause, list[int], float]]]:
    """Cause, confidence, words and alternatives for a rank that left its peers' loop."""
    loops = left_loops(facts, rank)
    if not loops and _peers_are_in_no_loop(facts, rank):
        return (
            Cause.SKIPPED_COLLECTIVE,
            0.85,
            "; its peers are in straight code, behind all loops",
            [],
        )
    compared = steps_compared(facts, rank, loops)
    if compared is not None:
        difference, words = compared
        if difference < 0:
            return Cause.UNEVEN_INPUTS, SHOWN, f"; it reached {words}", []
        steps = "as many" if difference == 0 else "more"
        done = f"; it did {steps} steps but fewer operations ({words})"
        return Cause.SKIPPED_COLLECTIVE, SEEN, done, []
    short = facts.operations_behind(rank)
    lines: list[int] = []
    if loops:
        peer = next((w.call.rank for w in facts.graph.waits if w.call.rank != rank), None)
        lines = _lines_in_loop(facts, peer, loops[-1]) if peer is not None else []
    per_step = _operations_per_iteration(lines)
    partly = short % per_step if per_step else 0
    if per_step and per_step > 1 and partly and not _lacks_whole_iterations(lines, short):
        return (
            Cause.SKIPPED_COLLECTIVE,
            PLAUSIBLE,
            f"; {short} operations fewer, where a step has {per_step}",
            [(Cause.UNEVEN_INPUTS, [rank], ALTERNATIVE)],
        )
    return (
        Cause.UNEVEN_INPUTS,
        PLAUSIBLE,
        f"; {short} operations fewer than its peers",
        [(Cause.SKIPPED_COLLECTIVE, [rank], ALTERNATIVE)],
    )
