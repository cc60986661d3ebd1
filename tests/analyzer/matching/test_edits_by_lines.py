"""Rings of two groups, which lines tell from calls left out and made too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from graph_rows import Row, columns, line_frames

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

#: A group, the line that calls on it, and the line of the program that leads there.
Call = tuple[str, int, int]
WORLD, PAIR = "0", "2"
#: Line of a backward pass, which reduces gradients from within torch.
BACKWARD, PACKAGES = 30, "/v/lib/python3.11/site-packages"
THREAD = {"thread_id": "140", "thread_name": "main"}


def call(group: str, line: int, way: int = 99) -> Call:
    return group, line, way


def job(
    rounds: Sequence[Call], count: int, last: Mapping[int, Sequence[Call]], pairs: Sequence[int]
) -> list[Finding]:
    """Four ranks that did so many rounds, those in pairs with them; each waits in its last call."""
    dumps = []
    for rank in range(4):
        numbers = Counter[str]()
        rows = []
        calls = [*list(rounds) * count, *last[rank]]
        if rank not in pairs:
            calls = [one for one in calls if one[0] != PAIR]
        for at, (group, line, way) in enumerate(calls):
            own = str(1 + rank // 2) if group == PAIR else group
            numbers[own] += 1
            frames = line_frames(line)
            frames[-1]["line"] = way
            if line == BACKWARD:
                frames[0] = {**frames[0], "filename": f"{PACKAGES}/torch/autograd/graph.py"}
            extra = {**THREAD, "frames": frames}
            done = at < len(calls) - 1
            rows.append(Row("all_reduce", numbers[own], own, done=done, extra=extra))
        groups = {WORLD: range(4)}
        if rank in pairs:
            groups[str(1 + rank // 2)] = range(rank // 2 * 2, rank // 2 * 2 + 2)
        dumps.append(columns(rank, rows, backend="gloo", members=groups))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize(
    ("line", "way", "cause"),
    [(21, 77, Cause.GROUP_ORDER), (21, 99, Cause.COLLECTIVE_MISMATCH)],
)
def test_a_call_again_by_a_way_of_its_own_came_before_the_other(
    line: int, way: int, cause: Cause
) -> None:
    """Rank 3 calls on its pair before all are called on; by the same way it does so twice."""
    rounds = [call(WORLD, 17), call(WORLD, 17), call(PAIR, 21)]
    last = {rank: [call(WORLD, 17)] for rank in range(3)}
    (finding,) = job(rounds, 5, {**last, 3: [call(PAIR, line, way)]}, (2, 3))
    assert (finding.cause, finding.culprits) == (cause, [3])
    assert ("before which the order of all its peers has" in finding.summary) == (way == 77)


def test_a_call_twice_at_once_left_out_the_backward_pass_in_between() -> None:
    """Its two reductions are of one line: a rank whose gradients are not all needed makes none."""
    rounds = [call(WORLD, BACKWARD), call(WORLD, BACKWARD), call(PAIR, 21)]
    last = {rank: [call(WORLD, BACKWARD)] for rank in range(3)}
    (finding,) = job(rounds, 5, {**last, 3: [call(PAIR, 21)]}, (2, 3))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [3])


def test_one_line_that_calls_on_both_groups_did_so_in_another_order() -> None:
    rounds = [call(WORLD, 17), call(WORLD, 18), call(PAIR, 17)]
    last = {rank: [call(WORLD, 17)] for rank in range(3)}
    (finding,) = job(rounds, 5, {**last, 3: [call(PAIR, 17)]}, (2, 3))
    assert (finding.cause, finding.culprits) == (Cause.GROUP_ORDER, [3])
    assert "before which its own rounds so far have" in finding.summary


def test_who_comes_by_its_usual_way_to_what_is_later_left_out_what_was_due() -> None:
    """Rank 1 waits for all while its pair waits for it; too few rounds are known to tell more."""
    rounds = [call(PAIR, 14), call(PAIR, 14), call(WORLD, 30)]
    pair, world = call(PAIR, 14), call(WORLD, 30)
    last = {0: [pair, pair], 1: [pair, world], 2: [pair, pair, world], 3: [pair, pair, world]}
    (finding,) = job(rounds, 1, last, range(4))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [1])


def test_one_line_that_never_called_on_a_group_took_the_wrong_one() -> None:
    rounds = [call(WORLD, 17), call(PAIR, 18)]
    last = {rank: [call(WORLD, 17)] for rank in range(3)}
    (finding,) = job(rounds, 5, {**last, 3: [call(PAIR, 17)]}, (2, 3))
    assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [3])
