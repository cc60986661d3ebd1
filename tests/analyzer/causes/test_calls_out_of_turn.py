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
    due: int,
    done: Sequence[tuple[int, ...]],
    deviating: Sequence[int] = (1,),
) -> Verdict:
    """Rank 1 came with ``mine`` where its peers are at the ``due``-th call of a round."""
    aborted = ended(view(1), code=None, signal=signal.SIGABRT)
    aborted.stderr = REFUSED
    lost = [raised(view(r), "RuntimeError", LOST, user(7), at=2000) for r in (0, 2)]
    facts = job([aborted, *lost], trigger=None)
    group = facts.graph.groups[0]
    seq = len(done) + 1
    calls = {}
    for rank in range(3):
        size = mine if rank == 1 else ROUND[due]
        given = Arguments(input_sizes=(size,), input_dtypes=("Float",))
        calls[rank] = Call(rank, group, seq, "all_reduce", given, (user(7),))
        if rank != 1:
            rows = [Row("all_reduce", n, inputs=[one]) for n, one in enumerate(done, 1)]
            rows.append(Row("all_reduce", seq, inputs=[size], done=False))
            facts.dumps[rank] = columns(rank, rows, members={"0": range(3)}, backend="gloo")
    facts.graph.lookup = CallLookup(DumpsInMemory(facts.dumps))
    facts.graph.last_calls.update(calls)
    facts.graph.divergences = [Divergence(group, seq, Difference.SIZE, calls, (1,), ())]
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
