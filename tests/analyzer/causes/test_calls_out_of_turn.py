"""A rank that comes with the size of another call of its peers' rounds, from one line of code."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest
from graph_rows import Row, columns
from views import ended, job, raised, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.flight_recorder.columns import Arguments
from hanglab.analyzer.matching.call_lookup import CallLookup, DumpsInMemory
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.verdict import Cause, Verdict

REFUSED = (
    "[enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 96 vs 32. "
    "Received data size doesn't match expected size.\n"
)
LOST = "[/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:38309: Connection reset"
#: What a step reduces, in this order.
ROUND = ((16, 32), (48,), (32, 48), (4,))


def verdict_on(
    mine: tuple[int, ...],
    due: int | tuple[int, ...],
    done: Sequence[tuple[int, ...]],
    deviating: Sequence[int] = (1,),
    *,
    before: tuple[int, ...] = (),
    following: tuple[int, ...] = (),
) -> Verdict:
    """Rank 1 came with ``mine`` where its peers are at the ``due``-th call of a round, or size.

    It did so behind ``before``, and they have ``following`` queued.
    """
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = REFUSED
    lost = [raised(view(r), "RuntimeError", LOST, user(7), at=2000) for r in (0, 2)]
    facts = job([aborted, *lost], trigger=None)
    group = facts.graph.groups[0]
    seq = len(done) + 1
    calls = {}
    for rank in range(3):
        size = mine if rank == 1 else due if isinstance(due, tuple) else ROUND[due]
        given = Arguments(input_sizes=(size,), input_dtypes=("Float",))
        calls[rank] = Call(rank, group, seq, "all_reduce", given, (user(7),))
        if rank != 1:
            rows = [Row("all_reduce", n, inputs=[one]) for n, one in enumerate(done, 1)]
        else:
            rows = [Row("all_reduce", seq - 1, inputs=[before], done=False)] if before else []
        rows.append(Row("all_reduce", seq, inputs=[size], done=False))
        if rank != 1 and following:
            rows.append(Row("all_reduce", seq + 1, inputs=[following], done=False))
        if rank != 1 or before:
            facts.dumps[rank] = columns(rank, rows, members={"0": range(3)}, backend="gloo")
    facts.graph.lookup = CallLookup(DumpsInMemory(facts.dumps))
    facts.graph.last_calls.update(calls)
    facts.graph.divergences = [Divergence(group, seq, Difference.SIZE, calls, tuple(deviating), ())]
    return conclude(facts)


@pytest.mark.parametrize("due", [0, 1, 2])
def test_the_size_of_another_call_of_the_round_is_that_call(due: int) -> None:
    for other in set(range(len(ROUND))) - {due}:
        verdict = verdict_on(ROUND[other], due, [*ROUND * 3, *ROUND[:due]])
        assert (verdict.cause, verdict.culprits) == (Cause.COLLECTIVE_MISMATCH, [1])
        assert "another call of its round" in verdict.summary
        assert Cause.SKIPPED_COLLECTIVE in {one.cause for one in verdict.alternatives}
        assert "pad" not in verdict.advice


@pytest.mark.parametrize(
    ("mine", "done"),
    [
        ((17, 32), ROUND * 3),  # a size that no call of the round has
        ((48,), ROUND[:3]),  # no rounds so far
        ((48,), [*ROUND, *ROUND, *ROUND[:2]]),  # the peers left theirs
        ((3,), [(3,), (5,), (9,), (2,), (8,), (6,)]),  # sizes of batches, which vary
    ],
)
def test_else_it_is_the_size_that_differs(
    mine: tuple[int, ...], done: Sequence[tuple[int, ...]]
) -> None:
    verdict = verdict_on(mine, 0, done)
    assert (verdict.cause, verdict.culprits) == (Cause.SIZE_MISMATCH, [1])


@pytest.mark.parametrize(
    ("before", "following", "cause"),
    [
        ((64,), (32,), Cause.COLLECTIVE_MISMATCH),
        ((64,), (64,), Cause.SIZE_MISMATCH),  # they do not come to that size
        ((16,), (32,), Cause.SIZE_MISMATCH),  # it did not come from theirs
    ],
)
def test_a_rank_that_is_a_call_ahead_without_rounds(
    before: tuple[int, ...], following: tuple[int, ...], cause: Cause
) -> None:
    """It did before what its peers are in, and does what they do next."""
    verdict = verdict_on((32,), (64,), ROUND[:2], before=before, following=following)
    assert (verdict.cause, verdict.culprits) == (cause, [1])
