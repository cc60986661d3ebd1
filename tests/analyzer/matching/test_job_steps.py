"""Steps of the job tell whether a call was left out, or is one too many, where hosts run ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from graph_rows import Row, columns, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: Calls of each step of a rank: (operation, line).
Steps = Sequence[Sequence[tuple[str, int]]]
REDUCE = ("all_reduce", 10)
GATHER = ("all_gather", 20)


def dump_of(rank: int, steps: Steps, hangs_at: int, marked: bool = True) -> RankDump:
    """Dump of a rank that called all of it, and whose device ended what comes before a number."""
    rows, begun = [], []
    for step, calls in enumerate(steps):
        # Entries are a millisecond apart, from one second on.
        begun.append((step, 1_000_000_000 + len(rows) * 1_000_000 - 1))
        for op, line in calls:
            number = len(rows) + 1
            rows.append(Row(op, number, line=line, done=number < hangs_at))
    dump = columns(rank, rows, members=world(4))
    return replace(dump, steps_begun=tuple(begun)) if marked else dump


def finding_of(odd: Steps, usual: Steps, hangs_at: int, marked: bool = True) -> Finding:
    orders = [usual, usual, odd, usual]
    dumps = [dump_of(rank, steps, hangs_at, marked) for rank, steps in enumerate(orders)]
    (finding,) = synchronization_findings(build_wait_for_graph(dumps))
    assert finding.culprits == [2]
    return finding


#: Once in a while all gather: in step 4 the others, and the odd rank a step later.
GATHERED_LATER = (
    [*[[REDUCE]] * 4, [REDUCE], [GATHER, REDUCE], [REDUCE]],
    [*[[REDUCE]] * 4, [GATHER, REDUCE], [REDUCE], [REDUCE]],
    5,
)
#: The odd rank gathers in step 4, and once more than all.
GATHERED_EARLIER = (
    [*[[REDUCE], [GATHER, REDUCE]] * 2, [GATHER, REDUCE], [REDUCE], [REDUCE]],
    [*[[REDUCE], [GATHER, REDUCE]] * 2, [REDUCE], [GATHER, REDUCE], [REDUCE]],
    7,
)


def test_what_comes_in_a_later_step_was_left_out_of_this_one() -> None:
    assert finding_of(*GATHERED_LATER).cause is Cause.SKIPPED_COLLECTIVE
    told = finding_of(*GATHERED_LATER)
    assert any(one.source == "progress" and "fewer" in one.detail for one in told.evidence)


def test_what_comes_in_an_earlier_step_is_one_too_many() -> None:
    told = finding_of(*GATHERED_EARLIER)
    assert told.cause is Cause.COLLECTIVE_MISMATCH
    assert any(one.source == "progress" and "more" in one.detail for one in told.evidence)


def test_a_line_known_to_the_rank_is_one_too_many_before_the_step_is_over() -> None:
    """As on a host that is blocked in it: its peers are in their next step."""
    steps = [[REDUCE, GATHER], [REDUCE], [REDUCE]]
    told = finding_of([*steps, [REDUCE, GATHER]], [*steps, [REDUCE], [REDUCE], [REDUCE]], 6)
    assert told.cause is Cause.COLLECTIVE_MISMATCH


def test_a_line_that_all_come_to_behind_their_steps_is_no_call_too_many() -> None:
    last = [[REDUCE, GATHER]]
    told = finding_of([*[[REDUCE]] * 4, *last], [*[[REDUCE]] * 6, *last], 6)
    assert told.cause is Cause.SKIPPED_COLLECTIVE


def test_another_call_in_the_place_of_one_is_a_mismatch() -> None:
    other = ("broadcast", 30)
    told = finding_of([*[[REDUCE]] * 3, [other], *[[REDUCE]] * 3], [[REDUCE]] * 7, 4)
    assert told.cause is Cause.COLLECTIVE_MISMATCH
    assert not any(one.source == "progress" for one in told.evidence)


@pytest.mark.parametrize("case", [GATHERED_LATER, GATHERED_EARLIER])
def test_without_marks_nothing_is_said_of_steps(case: tuple[Steps, Steps, int]) -> None:
    told = finding_of(*case, marked=False)
    assert not any(one.source == "progress" for one in told.evidence)
