"""Orders with messages, and ranks with orders of their own: who left the rounds, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Operation, line, and the other end of a message or the size of a collective's tensor.
Called = tuple[str, int, int]
SEND, RECV, REDUCE, BARRIER = "send", "recv", "all_reduce", "barrier"


def dump_of(rank: int, size: int, calls: Sequence[Called]) -> RankDump:
    """The buffer of a rank that waits in the last of its calls."""
    numbers: Counter[bool] = Counter()
    rows = []
    for place, (op, line, other) in enumerate(calls):
        message = op in (SEND, RECV)
        numbers[message] += 1
        ends = (rank, other) if op == SEND else (other, rank)
        name = f"{op} {ends[0]}->{ends[1]}" if op == SEND else f"{op} {ends[1]}<-{ends[0]}"
        rows.append(
            Row(
                name if message else op,
                numbers[False],
                done=place < len(calls) - 1,
                inputs=((4,),) if message else ((other,),),
                line=line,
                p2p_seq=numbers[True] if message else 0,
                extra={"thread_id": "7", "thread_name": "python"},
            )
        )
    return columns(rank, rows, members={"0": list(range(size))}, backend="gloo")


def findings(ranks: Sequence[Sequence[Called]]) -> list[Finding]:
    dumps = [dump_of(rank, len(ranks), calls) for rank, calls in enumerate(ranks)]
    return synchronization_findings(build_wait_for_graph(dumps))


def ring(rank: int, size: int) -> list[Called]:
    """A step in which all pass something on, and reduce two gradients."""
    return [
        (SEND, 12, (rank + 1) % size),
        (RECV, 13, (rank - 1) % size),
        (REDUCE, 20, 8),
        (REDUCE, 20, 4),
    ]


def stage(rank: int, size: int) -> list[Called]:
    """A step of one stage of a pipeline: two microbatches, and the loss of the last stage."""
    last = size - 1
    forward = [(RECV, 30, rank - 1)] * (rank > 0) + [(SEND, 33, rank + 1)] * (rank < last)
    backward = [(RECV, 40, rank + 1)] * (rank < last) + [(SEND, 43, rank - 1)] * (rank > 0)
    return [*forward * 2, *backward * 2, ("broadcast", 50, 1)]


SIZES_AND_RANKS = [(3, 0), (3, 2), (4, 1), (5, 4)]


@pytest.mark.parametrize(("size", "wrong"), SIZES_AND_RANKS)
def test_a_reduction_left_out_before_messages(size: int, wrong: int) -> None:
    """It waits in its next round's message while its peers wait in what it left out."""
    ranks = [ring(r, size) * 3 + ring(r, size)[:4] for r in range(size)]
    ranks[wrong] = [*ring(wrong, size) * 3, *ring(wrong, size)[:3], *ring(wrong, size)[:2]]
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.SKIPPED_COLLECTIVE, [wrong])
    assert found.collective is not None and found.collective.op == REDUCE


@pytest.mark.parametrize(("size", "wrong"), SIZES_AND_RANKS)
@pytest.mark.parametrize("extra", [(REDUCE, 20, 4), (BARRIER, 99, 1)])
def test_a_collective_too_many_before_messages(size: int, wrong: int, extra: Called) -> None:
    ranks = [ring(r, size) * 3 + ring(r, size)[:2] for r in range(size)]
    ranks[wrong] = [*ring(wrong, size) * 3, extra]
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [wrong])


@pytest.mark.parametrize("wrong", [1, 3])
def test_a_message_left_out_before_a_collective_in_which_all_meet(wrong: int) -> None:
    """In rounds of a message and a collective the collective's number tells which it was."""
    step: list[Called] = [(SEND, 12, 0), ("broadcast", 20, 1)]
    ranks: list[list[Called]] = [[*step * 4] for _ in range(4)]
    ranks[0] = [*([(RECV, 13, -1)] * 3 + [("broadcast", 20, 1)]) * 3, *[(RECV, 13, -1)] * 3]
    ranks[wrong] = [*step * 3, step[1]]
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [wrong])


@pytest.mark.parametrize(("size", "wrong"), [(3, 0), (4, 1), (4, 3), (5, 2)])
def test_a_barrier_of_one_stage(size: int, wrong: int) -> None:
    """Its peers wait for what its own rounds have there, directly or not."""
    # Those in front of the last one come further before they wait for it.
    issued = [3, 4, 2, 1] if wrong == size - 1 else [1] * size
    ranks = [stage(r, size) * 3 + stage(r, size)[: issued[r]] for r in range(size)]
    ranks[wrong][-1] = (BARRIER, 99, 1)
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [wrong])
    if wrong == 0:  # No other stage makes the calls of the first.
        assert "own rounds" in found.summary


@pytest.mark.parametrize(("size", "wrong"), [(4, 1), (4, 2), (5, 2)])
def test_a_line_that_always_had_another_peer(size: int, wrong: int) -> None:
    """The one that it now waits for does what it always did."""
    ranks = [stage(r, size) * 3 + stage(r, size)[:1] for r in range(size)]
    ranks[wrong][-1] = (RECV, 30, wrong + 1)
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.P2P_UNMATCHED, [wrong])


@pytest.mark.parametrize("alone", [0, 2])
def test_a_collective_that_one_rank_alone_does_not_leave_out(alone: int) -> None:
    size = 4
    ranks = [[*stage(r, size) * 3, *stage(r, size)[:-1], stage(r, size)[0]] for r in range(size)]
    ranks[alone] = stage(alone, size) * 4
    (found,) = findings(ranks)
    assert (found.cause, found.culprits) == (Cause.COLLECTIVE_MISMATCH, [alone])
    assert "all others left that out" in found.summary


def test_who_has_not_repeated_itself_is_not_accused_of_a_new_call() -> None:
    size = 4
    ranks = [stage(r, size)[:1] for r in range(size)]
    ranks[1] = [(BARRIER, 99, 1)]
    assert not build_wait_for_graph([dump_of(r, size, c) for r, c in enumerate(ranks)]).departures


def test_what_repeats_itself_within_a_round_is_no_round() -> None:
    """A rank that took a wrong peer a while ago comes to the reduction as all do."""
    size = 5
    hops = [[(SEND, 12, (r + 1) % size), (RECV, 13, (r - 1) % size)] * 4 for r in range(size)]
    ranks: list[list[Called]] = [[*mine, (REDUCE, 20, 8)] * 3 for mine in hops]
    ranks[1][18] = (SEND, 12, 4)
    assert not build_wait_for_graph([dump_of(r, size, c) for r, c in enumerate(ranks)]).departures


def test_stages_whose_schedules_differ_from_the_first_round_on_are_no_departures() -> None:
    """One forward, one backward: a stage begins with as many as come behind it."""

    def schedule(rank: int) -> list[Called]:
        ahead = 2 - rank
        forward, backward = (SEND, 33, 3), (RECV, 40, 3)
        return [forward] * ahead + [forward, backward] * (4 - ahead) + [backward] * ahead

    ranks: list[list[Called]] = [schedule(r) * 2 + [(REDUCE, 50, 4)] for r in range(3)]
    ranks.append([(REDUCE, 50, 4)])
    assert not build_wait_for_graph([dump_of(r, 4, c) for r, c in enumerate(ranks)]).departures


def pair(changed: Row, rounds: int, *, wrong: int) -> list[Finding]:
    """Two ranks that reduce alike, of which one has other arguments in the last round."""
    usual = Row("all_reduce", 0, line=7, inputs=((8,),))
    dumps = []
    for rank in range(2):
        rows = [replace(usual, seq=n + 1) for n in range(rounds)]
        last = changed if rank == wrong else usual
        rows.append(replace(last, seq=rounds + 1, done=False))
        dumps.append(columns(rank, rows, members={"0": [0, 1]}))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        (Row("all_reduce", 0, line=7, inputs=((9,),)), Cause.SIZE_MISMATCH),
        (Row("all_reduce", 0, line=7, inputs=((8,),), dtype="Double"), Cause.DTYPE_MISMATCH),
    ],
)
def test_of_two_the_one_that_changed_what_its_line_always_had(
    changed: Row, cause: Cause, wrong: int
) -> None:
    (found,) = pair(changed, 6, wrong=wrong)
    assert (found.cause, found.culprits) == (cause, [wrong])
    (either,) = pair(changed, 2, wrong=wrong)  # too short a past
    assert (either.cause, either.culprits) == (cause, [0, 1])


@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize("left_out", [1, 2])
def test_operations_between_the_calls_of_a_rank_that_died(wrong: int, left_out: int) -> None:
    """Of it only what passed the Python boundary is known, and the numbers between."""
    step: list[Called] = [(REDUCE, 5, 64)] * 4 + [(REDUCE, 20, 1), (BARRIER, 22, 1)]
    ranks: list[list[Called]] = [[*step * 3, *step[:4]] for _ in range(3)]
    ranks[wrong] = [*step * 3, *step[left_out:5]]
    dumps = [dump_of(rank, 3, calls) for rank, calls in enumerate(ranks)]
    entries = dumps[wrong].entries
    assert entries is not None
    seen = np.array([line != 5 for _, line, _ in ranks[wrong]])
    for name in ("record_id", "pg_id", "group", "seq", "p2p_seq", "op_id", "operation",
                 "argument", "stack", "state", "retired", "is_p2p", "created_ns", "started_ns",
                 "completed_ns", "timeout_ms", "duration_ms", "thread"):  # fmt: skip
        setattr(entries, name, getattr(entries, name)[seen])
    entries.record_id[:] = -1
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    assert (found.cause, found.culprits) == (Cause.SKIPPED_COLLECTIVE, [wrong])
