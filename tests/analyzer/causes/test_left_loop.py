"""Rings of waits that began with a rank that left its peers' loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from graph_rows import Row, columns
from views import C10D, job, progress, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.facts.loops import counter_of, left_loops, loops_around
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.analyzer.graph.wait_for_graph import Cycle, Unmatched, Wait, WaitKind
from hanglab.analyzer.matching.call_lookup import CallLookup, DumpsInMemory
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.case.reader import HostCase
from hanglab.recorder.case.records import (
    CodeBlock,
    CodeLoop,
    CodeShape,
    SourceFunction,
    StackFrame,
)

FILE = "/home/me/train.py"
#: The loop's line with an operation, and one behind the loop.
INSIDE, BEHIND = 20, 30


def position(
    rank: int,
    line: int,
    *,
    passed: int,
    counter: int | None = None,
    epoch: int | None = None,
    outer: bool = False,
) -> RankView:
    """In an all_reduce at ``line``, after ``passed`` operations in the loop of lines 15 to 25."""
    mine = progress(view(rank, StackFrame("all_reduce", C10D, 3245), user(line)), -1)
    loops = [CodeLoop(15, 25, counter)]
    if outer:
        loops.insert(0, CodeLoop(12, 35, epoch))
    mine.shapes = [CodeShape(FILE, "train", 10, 40, loops)]
    assert mine.progress is not None
    mine.progress.operations = [
        OperationCall(
            index=i, method="allreduce", group="0", entered_ns=i, returned_ns=i,
            wait_entered_ns=i, wait_returned_ns=i, completed=True,
            file=FILE, line=INSIDE, function="train",
        )
        for i in range(passed)
    ]  # fmt: skip
    mine.progress.operations_total = passed
    return mine


def ring(views: Sequence[RankView], first: int, second: int) -> CaseFacts:
    """``first`` waits for ``second`` in group 5, everybody else for ``first`` in the world."""
    known = job(views)
    world, pair = known.graph.groups[0], ProcessGroup("5", (first, second), "pair")
    calls = {r: Call(r, world, 7, "all_reduce") for r in known.ranks}
    calls[first] = Call(first, pair, 1, "all_reduce")
    known.graph.waits = [
        Wait(call, WaitKind.NOT_ENTERED, (second if rank == first else first,))
        for rank, call in calls.items()
    ]
    known.graph.cycles = [
        Cycle((first, second), (calls[first], calls[second]), False, candidates=(first, second))
    ]
    return known


@pytest.mark.parametrize(
    ("counters", "cause", "confidence", "words"),
    [
        ((None, None), Cause.UNEVEN_INPUTS, 0.7, "sooner than the others, and"),
        ((4, 6), Cause.UNEVEN_INPUTS, 0.95, "sooner than the others (loop counter 4"),
        ((6, 6), Cause.SKIPPED_COLLECTIVE, 0.85, "after as many steps as the others (loop"),
    ],
)
def test_one_rank_past_the_loop_of_all_others(
    counters: tuple[int | None, int | None], cause: Cause, confidence: float, words: str
) -> None:
    gone = position(3, BEHIND, passed=5, counter=counters[0])
    views = [position(r, INSIDE, passed=7, counter=counters[1]) for r in range(3)]
    verdict = conclude(ring([*views, gone], 3, 1))
    assert (verdict.cause, verdict.culprits, verdict.confidence) == (cause, [3], confidence)
    assert verdict.victims == [0, 1, 2]
    assert f"has left a loop {words}" in verdict.summary
    assert verdict.location is not None
    assert (verdict.location.rank, verdict.location.line) == (3, BEHIND)
    assert [finding.cause for finding in verdict.findings] == [cause]


def test_two_that_left_early_are_both_named() -> None:
    views = [position(r, INSIDE, passed=7) for r in range(2)]
    views += [position(r, BEHIND, passed=5) for r in (2, 3)]
    verdict = conclude(ring(views, 3, 1))
    assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [2, 3])


def test_those_who_passed_the_loop_as_often_as_anybody_have_not_left_too_soon() -> None:
    """Another group has done all its steps; of this one, 3 left and 2 waits for it."""
    views = [position(r, BEHIND, passed=20) for r in (0, 1)]
    views += [position(2, INSIDE, passed=16), position(3, BEHIND, passed=15)]
    verdict = conclude(ring(views, 3, 2))
    assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [3])


def innocent(case: str) -> list[RankView]:
    others = [position(r, INSIDE, passed=7) for r in range(3)]
    if case == "inside as well":
        return [*others, position(3, INSIDE + 2, passed=5)]
    if case == "never inside":
        return [*others, position(3, BEHIND, passed=0)]
    if case == "passed it as often":
        return [*others, position(3, BEHIND, passed=7)]
    if case == "most are past it":
        return [others[0], *(position(r, BEHIND, passed=5) for r in (1, 2, 3))]
    if case == "more steps":
        others = [position(r, INSIDE, passed=7, counter=6) for r in range(3)]
        return [*others, position(3, BEHIND, passed=5, counter=9)]
    if case == "merely in the outer loop":
        others = [position(r, INSIDE, passed=7, outer=True) for r in range(3)]
        return [*others, position(3, BEHIND, passed=5, outer=True)]
    if case == "in the same step of the outer loop":
        others = [position(r, INSIDE, passed=7, epoch=2, outer=True) for r in range(3)]
        gone = position(3, BEHIND, passed=5, epoch=2, outer=True)
        # The ring of its boundary has lost the beginning: it may have passed it as often.
        assert gone.progress is not None
        gone.progress.operations_total = 9
        return [*others, gone]
    assert case == "another iteration of the outer loop"
    others = [position(r, INSIDE, passed=7, counter=1, epoch=2, outer=True) for r in range(3)]
    return [*others, position(3, BEHIND, passed=5, counter=0, epoch=1, outer=True)]


@pytest.mark.parametrize(
    "case",
    [
        "inside as well",
        "never inside",
        "passed it as often",
        "most are past it",
        "more steps",
        "merely in the outer loop",
        "in the same step of the outer loop",
        "another iteration of the outer loop",
    ],
)
def test_a_ring_stays_one_of_groups_where_nobody_is_proved_to_have_left(case: str) -> None:
    verdict = conclude(ring(innocent(case), 3, 1))
    assert (verdict.cause, verdict.culprits) == (Cause.GROUP_ORDER, [1, 3])


@pytest.mark.parametrize(("counters", "confidence"), [((4, 6), 0.95), ((None, None), 0.7)])
def test_the_same_iteration_of_the_outer_loop_lets_the_inner_one_tell(
    counters: tuple[int | None, int | None], confidence: float
) -> None:
    mine, theirs = counters
    views = [position(r, INSIDE, passed=7, counter=theirs, epoch=2, outer=True) for r in range(3)]
    gone = position(3, BEHIND, passed=5, counter=mine, epoch=2, outer=True)
    verdict = conclude(ring([*views, gone], 3, 1))
    assert (verdict.cause, verdict.culprits) == (Cause.UNEVEN_INPUTS, [3])
    assert verdict.confidence == confidence


def test_a_message_that_was_left_out_in_the_loop_is_no_uneven_input() -> None:
    """Its ring has a receive: the other half says more than the loop without a counter."""
    views = [position(r, INSIDE, passed=7, counter=3) for r in range(3)]
    known = ring([*views, position(3, BEHIND, passed=5, counter=3)], 3, 1)
    (cycle,) = known.graph.cycles
    receive = Call(1, known.graph.groups[0], None, "recv", peer=3)
    known.graph.cycles = [Cycle((3, 1), (cycle.calls[0], receive), False)]
    known.graph.unmatched = [Unmatched(receive, cycle.calls[0], (3,), likely=True)]
    verdict = conclude(known)
    assert (verdict.cause, verdict.culprits) == (Cause.P2P_UNMATCHED, [3])


def waiting_peer(line: int, called: tuple[Frame, ...]) -> CaseFacts:
    """Rank 0 past the loop of lines 15 to 25, rank 1 at ``line`` in what it called elsewhere."""
    facts = job([position(0, BEHIND, passed=3), position(1, line, passed=4)])
    call = Call(1, facts.graph.groups[0], 7, "all_reduce", stack=called)
    facts.graph.waits = [Wait(call, WaitKind.NOT_ENTERED, (0,))]
    return facts


@pytest.mark.parametrize(
    ("called", "left"),
    [
        ((), True),
        ((Frame("train", FILE, INSIDE),), True),
        ((Frame("reduce", FILE, 3), Frame("train", FILE, INSIDE)), True),
        ((Frame("reduce", FILE, 3),), True),
        ((Frame("train", FILE, 12),), False),
        ((Frame("reduce", FILE, 3), Frame("train", FILE, 12)), False),
    ],
)
def test_a_loop_in_which_a_peer_waits_for_what_it_called_before_is_not_left(
    called: tuple[Frame, ...], left: bool
) -> None:
    assert bool(left_loops(waiting_peer(INSIDE, called), 0)) is left


def test_a_thread_of_another_program_has_left_no_loop() -> None:
    """Two threads of a rank have no function in common, so neither is behind the other's loop."""
    facts = waiting_peer(INSIDE, ())
    other = view(0, StackFrame("all_reduce", C10D, 3245), StackFrame("saver", FILE, 50))
    other.shapes = [CodeShape(FILE, "saver", 45, 60, [])]
    facts.ranks[0] = other
    assert left_loops(facts, 0) == []


def source(loop: str, leaves: str = "", inside: str = "reduce()") -> list[str]:
    """Lines 10 to 40 of train(): a loop of lines 15 to 25 with an operation in line 20."""
    lines = {10: "def train(items):", 15: f"    {loop}", 17: f"        {leaves}"}
    lines |= {20: f"        {inside}", 25: "        step()", 30: "    reduce()", 40: "    return"}
    return [lines.get(number, "") for number in range(10, 41)]


def handled(lines: list[str]) -> list[str]:
    """The same with its loop in a ``try`` of which the handler goes on behind the loop."""
    found = [f"    {line}" if 5 <= n <= 15 and line else line for n, line in enumerate(lines)]
    found[4], found[16] = "    try:", "    except StopIteration: pass"
    return found


def with_else(lines: list[str]) -> list[str]:
    """The same with a ``break`` behind the inner loop of line 20, where that comes to its end."""
    return [*lines[:11], "        else: break", *lines[12:]]


@pytest.mark.parametrize(
    ("text", "counters", "cause"),
    [
        (source("for x in items:"), (4, 6), Cause.UNEVEN_INPUTS),
        (source("for x in items:", "if bad(): break"), (4, 6), Cause.UNEVEN_INPUTS),
        (source("for x in range(items):"), (None, None), Cause.UNEVEN_INPUTS),
        # As many rounds on every rank: one of them was done without its operation.
        (
            source("for x in range(9):", "if bad(): continue"),
            (None, None),
            Cause.SKIPPED_COLLECTIVE,
        ),
        (source("for i, x in enumerate((1, 2)):"), (None, None), Cause.SKIPPED_COLLECTIVE),
        # Left before its end, as the counters prove, by a decision.
        (source("for x in range(9):", "if bad(): break"), (4, 6), Cause.SKIPPED_COLLECTIVE),
        (source("for x in range(9):", "if bad(): return"), (4, 6), Cause.SKIPPED_COLLECTIVE),
        (source("for x in range(9):", "if bad(): break"), (None, None), Cause.UNEVEN_INPUTS),
        # That statement leaves another loop, or no loop at all.
        (
            source("for x in range(9):", inside="for y in items: reduce()"),
            (4, 6),
            Cause.UNEVEN_INPUTS,
        ),
        # Its input may have come to its end there.
        (source("for x in range(9):", "if not next(items, 0): break"), (4, 6), Cause.UNEVEN_INPUTS),
        (source("for x in range(9):", "if not next(items): pass"), (4, 6), Cause.UNEVEN_INPUTS),
        (handled(source("for x in range(9):", "x = take()")), (None, None), Cause.UNEVEN_INPUTS),
        (
            with_else(source("for x in range(9):", inside="for y in (1, 2): reduce()")),
            (None, None),
            Cause.UNEVEN_INPUTS,
        ),
        (
            source("for x in range(9):", inside="for y in (1, 2): reduce()"),
            (None, None),
            Cause.SKIPPED_COLLECTIVE,
        ),
    ],
)
def test_a_loop_of_as_many_rounds_on_every_rank_is_not_left_for_want_of_input(
    text: list[str], counters: tuple[int | None, int | None], cause: Cause, tmp_path: Path
) -> None:
    gone = position(3, BEHIND, passed=5, counter=counters[0])
    views = [position(r, INSIDE, passed=7, counter=counters[1]) for r in range(3)]
    facts = ring([*views, gone], 3, 1)
    row = SourceFunction(FILE, "train", 10, 40, lines=text, checksum="1")
    (tmp_path / "sources.json").write_bytes(msgspec.json.encode([row]))
    facts.hosts[gone.host] = HostView(case=HostCase(tmp_path, []))
    verdict = conclude(facts)
    assert (verdict.cause, verdict.culprits) == (cause, [3])
    assert ("as many rounds on every rank" in verdict.summary) == (
        cause is Cause.SKIPPED_COLLECTIVE
    )


@pytest.mark.parametrize(
    ("line", "issued", "cause"),
    [
        (31, False, "skipped_collective"),
        (28, False, "group_order"),
        # Its host has run ahead of its device.
        (31, True, "group_order"),
    ],
)
def test_a_rank_past_the_line_of_its_peers_left_out_what_they_are_in(
    line: int, issued: bool, cause: str
) -> None:
    """Such as a checkpoint that one rank began once less, and all end before the last barrier."""
    wait = StackFrame("all_reduce", C10D, 3245)
    views = [view(rank, wait, user(line if rank == 3 else 29)) for rank in range(4)]
    for one in views:
        one.shapes = [CodeShape(FILE, "train", 10, 40, [], [CodeBlock([27, 28, 29, 31], [])])]
    facts = ring(views, 1, 3)
    (cycle,) = facts.graph.cycles
    world, pair = facts.graph.groups[0], cycle.calls[0].group
    calls = [Call(1, pair, 1, "all_reduce"), Call(3, world, 7, "all_reduce")]
    facts.graph.waits = [
        Wait(calls[0], WaitKind.NOT_ENTERED, (3,)),
        Wait(calls[1], WaitKind.NOT_ENTERED, (1,)),
    ]
    facts.graph.cycles = [Cycle((1, 3), tuple(calls), False, deviating=(3,), candidates=(1, 3))]
    behind = [Row("all_reduce", 1, group=pair.name, done=False)] if issued else []
    dump = columns(3, [Row("all_reduce", 7, done=False), *behind])
    facts.graph.lookup = CallLookup(DumpsInMemory({3: dump}))
    verdict = conclude(facts)
    assert verdict.cause is not None
    assert (verdict.cause.value, verdict.culprits) == (cause, [3])


@pytest.mark.parametrize(
    ("counter", "calls", "step", "counted"),
    [
        (7, 8, -1, True),
        (7, 7, -1, True),
        (8, 7, -1, True),
        (64, 7, -1, False),
        (7, 0, -1, False),
        (7, 0, 7, True),
        (7, 0, 6, False),
    ],
)
def test_an_integer_of_the_programs_own_iterator_counts_if_calls_or_marked_steps_agree(
    counter: int, calls: int, step: int, counted: bool
) -> None:
    one = position(1, INSIDE, passed=calls)
    assert one.progress is not None
    one.progress.operations_total, one.progress.step = calls, step
    one.shapes = [CodeShape(FILE, "train", 10, 40, [CodeLoop(15, 25, counter, counts=False)])]
    (loop,) = loops_around(one)
    assert (loop.counter, counter_of(one, loop)) == ((counter,) * 2 if counted else (None, None))
