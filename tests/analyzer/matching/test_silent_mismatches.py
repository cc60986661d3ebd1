"""Arguments that differ where nobody waits: the results are wrong, whatever else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Inputs, Status, Verdict
from hanglab.recorder.case.progress_records import SplitLists
from hanglab.recorder.case.records import Clock, Exit

GOOD = Row("all_reduce", 1, line=10)


def steps(one: Row, count: int, *, wrong: Row | None = None, at: int = 0) -> list[Row]:
    """``one`` under the numbers from 1 on; ``wrong`` under ``at``, and all after it."""
    return [
        replace(wrong if wrong is not None and seq >= at else one, seq=seq)
        for seq in range(1, count + 1)
    ]


def verdict_on(dumps: Sequence[RankDump], *, ended: bool | None = None) -> Verdict:
    """That on a bare folder, or on the Case of a job that ended well."""
    ranks = {dump.rank: RankView(rank=dump.rank, has_dump=True) for dump in dumps}
    if ended:
        for view in ranks.values():
            view.exit = Exit(at=Clock(1, 1), code=0)
    return conclude(
        CaseFacts(
            graph=build_wait_for_graph(dumps),
            ranks=ranks,
            dumps={dump.rank: dump for dump in dumps},
            case=bool(ended),
            inputs=Inputs(ranks=len(ranks)),
        )
    )


def dumps_of(*ranks: Sequence[Row], backend: str = "nccl") -> list[RankDump]:
    size = world(len(ranks))
    return [columns(r, mine, members=size, backend=backend) for r, mine in enumerate(ranks)]


def with_argument(dump: RankDump, line: int, **given: str | SplitLists) -> RankDump:
    """What the Python boundary knows of the calls from a line, as its records are joined."""
    entries = dump.entries
    assert entries is not None
    for row in range(len(entries)):
        if entries.stacks[int(entries.stack[row])][1].line == line:
            entries.arguments.append(
                replace(entries.arguments[int(entries.argument[row])], **given)  # type: ignore[arg-type]
            )
            entries.argument[row] = len(entries.arguments) - 1
    dump.sends_known = True
    return dump


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("culprit", [0, 1, 3])
@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (replace(GOOD, dtype="Int"), Cause.DTYPE_MISMATCH),
        (replace(GOOD, inputs=((5,),)), Cause.SIZE_MISMATCH),
    ],
)
def test_who_differs_and_gets_away_with_it_corrupts(
    ended: bool, culprit: int, wrong: Row, cause: Cause
) -> None:
    ranks = [steps(GOOD, 9, wrong=wrong if r == culprit else None, at=4) for r in range(4)]
    verdict = verdict_on(dumps_of(*ranks), ended=ended)
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.CORRUPT, cause, [culprit])
    assert verdict.collective is not None and verdict.collective.seq == 4
    assert verdict.location is not None and verdict.location.rank == culprit
    # Both call sites.
    assert {e.rank == culprit for e in verdict.evidence if "train.py:10" in e.detail} == {
        True,
        False,
    }
    assert len(verdict.findings) == 1


@pytest.mark.parametrize("size", [2, 3])
def test_reductions_that_differ_are_told_from_the_boundary(size: int) -> None:
    dumps = [
        with_argument(dump, 10, reduce_op="MAX" if dump.rank == 1 else "SUM")
        for dump in dumps_of(*[steps(GOOD, 6)] * size, backend="gloo")
    ]
    verdict = verdict_on(dumps)
    assert (verdict.status, verdict.cause) == (Status.CORRUPT, Cause.REDUCTION_MISMATCH)
    # Of two nothing tells who is wrong, and the confidence says so.
    assert verdict.culprits == ([0, 1] if size == 2 else [1])
    assert (verdict.confidence > 0.6) is (size > 2)


def test_a_buffer_of_gloo_alone_does_not_tell_finished_from_failed() -> None:
    ranks = [steps(GOOD, 3, wrong=replace(GOOD, inputs=((5,),)), at=3), steps(GOOD, 3)]
    assert verdict_on(dumps_of(*ranks, backend="gloo")).status is not Status.CORRUPT
    on = [steps(GOOD, 4, wrong=replace(GOOD, inputs=((5,),)), at=3), steps(GOOD, 4)]
    assert verdict_on(dumps_of(*on, backend="gloo")).status is Status.CORRUPT


def test_a_hang_of_another_rank_has_its_own_cause() -> None:
    # Rank 1 differs from number 3 on, rank 2 never comes to number 9.
    last = Row("all_reduce", 9, line=10, done=False)
    other = replace(GOOD, dtype="Int")
    ranks = [
        [*steps(GOOD, 8), last],
        [*steps(GOOD, 8, wrong=other, at=3), replace(last, dtype="Int")],
        steps(GOOD, 8),
        [*steps(GOOD, 8), last],
    ]
    verdict = verdict_on(dumps_of(*ranks))
    assert [(f.status, f.cause, f.culprits) for f in verdict.findings] == [
        (Status.HUNG, Cause.MISSING_RANK, [2]),
        (Status.CORRUPT, Cause.DTYPE_MISMATCH, [1]),
    ]


def test_a_hang_of_the_same_rank_does_not_hide_it() -> None:
    last = Row("all_reduce", 9, line=10, done=False)
    mine = steps(GOOD, 8, wrong=replace(GOOD, dtype="Int"), at=3)
    verdict = verdict_on(dumps_of([*steps(GOOD, 8), last], mine, [*steps(GOOD, 8), last]))
    assert [(f.status, f.culprits) for f in verdict.findings] == [
        (Status.HUNG, [1]),
        (Status.CORRUPT, [1]),
    ]


def test_a_later_difference_that_holds_everybody_up_is_the_cause() -> None:
    last = Row("all_reduce", 9, line=20, done=False)
    mine = [*steps(GOOD, 8, wrong=replace(GOOD, dtype="Int"), at=3), replace(last, inputs=((7,),))]
    verdict = verdict_on(dumps_of([*steps(GOOD, 8), last], mine, [*steps(GOOD, 8), last]))
    assert [(f.status, f.cause, f.culprits) for f in verdict.findings] == [
        (Status.HUNG, Cause.SIZE_MISMATCH, [1]),
        (Status.CORRUPT, Cause.DTYPE_MISMATCH, [1]),
    ]


def test_what_may_have_left_disorder_behind_explains_a_stall_right_after_it() -> None:
    last = Row("all_reduce", 4, line=10, done=False)
    mine = [*steps(GOOD, 3, wrong=replace(GOOD, inputs=((5,),)), at=3), last]
    verdict = verdict_on(dumps_of([*steps(GOOD, 3), last], mine, [*steps(GOOD, 3), last]))
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.SIZE_MISMATCH)


def test_a_stall_long_after_it_stays_open() -> None:
    last = Row("all_reduce", 9, line=10, done=False)
    other = replace(GOOD, dtype="Int")
    ranks = [[*steps(GOOD, 8, wrong=other if r == 1 else None, at=3), last] for r in range(3)]
    verdict = verdict_on(dumps_of(*ranks))
    assert verdict.status is Status.INCONCLUSIVE and not verdict.culprits
    assert [(f.status, f.culprits) for f in verdict.findings] == [(Status.CORRUPT, [1])]


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        # An all_gather of pieces that fit, a gather of which the root alone has outputs.
        ("all_gather", (((2,),), ((4,),), ((1,),)), (((2,), (4,), (1,)),) * 3),
        ("gather", (((2,),),) * 3, (((2,), (2,), (2,)), (), ())),
        # Counts that are each rank's own.
        ("all_to_all", (((6,),), ((3,),), ((9,),)), (((9,),), ((3,),), ((6,),))),
        ("scatter", (((3, 2),), (), ()), (((2,),),) * 3),
    ],
)
def test_legal_differences_are_healthy(
    op: str, inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> None:
    ranks = [
        steps(Row(op, 1, inputs=inputs[r], outputs=outputs[r], line=10), 5)  # type: ignore[arg-type]
        for r in range(3)
    ]
    assert verdict_on(dumps_of(*ranks)).status is Status.HEALTHY


@pytest.mark.parametrize(
    ("sent", "culprits"),
    [
        ((3, 1), None),
        ((2, 2), [1]),  # it sends itself more than it takes from itself
        ((2, 1), [0, 1]),
    ],
)
def test_split_lists_of_a_job_that_ended_well(
    sent: tuple[int, int], culprits: list[int] | None
) -> None:
    exchange = Row("all_to_all", 1, inputs=((4,),), outputs=((4,),), line=10)
    dumps = dumps_of(*[steps(exchange, 3)] * 2, backend="gloo")
    with_argument(dumps[0], 10, splits=SplitLists((1, 3), (1, 3)))
    with_argument(dumps[1], 10, splits=SplitLists(sent, (3, 1)))
    verdict = verdict_on(dumps, ended=True)
    if culprits is None:
        assert verdict.status is Status.HEALTHY
    else:
        assert (verdict.status, verdict.cause) == (Status.CORRUPT, Cause.SPLIT_MISMATCH)
        assert verdict.culprits == culprits
        assert verdict.collective is not None and verdict.collective.seq == 1
