"""Several ranks that left the order of all others alike, as a whole replica that ends its loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

STEPS = 4


def job(
    replicas: int, tensor: int, left: Collection[int], lost: Collection[int] = ()
) -> list[Finding]:
    """Replicas of ``tensor`` ranks each; those that ``left`` have one step less, and a barrier.

    Without the dumps of the ranks that are ``lost``.
    """
    size, dumps = replicas * tensor, []
    for rank in range(size):
        replica, place = divmod(rank, tensor)
        groups = {
            "0": range(size),
            str(replica + 1): range(replica * tensor, (replica + 1) * tensor),
            str(replicas + 1 + place): range(place, size, tensor),
        }
        within, across = list(groups)[1:]
        rows = []
        steps = STEPS - (replica in left)
        for step in range(1, steps + 1):
            for part in (0, 1):
                rows.append(Row("all_reduce", 2 * step - 1 + part, group=within, line=20 + part))
            stands = step == STEPS
            rows.append(Row("_reduce_scatter_base", step, group=across, line=30, done=not stands))
        if replica in left:
            rows.append(Row("all_reduce_barrier", 1, line=40, done=False))
        rows = [replace(row, extra={"thread_id": "140", "thread_name": "main"}) for row in rows]
        descriptions = {within: "tensor", across: "data"}
        if rank not in lost:
            dumps.append(columns(rank, rows, members=groups, descriptions=descriptions))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize(
    ("replicas", "tensor", "left"), [(3, 2, [1]), (4, 2, [0]), (4, 3, [3]), (5, 2, [1, 4])]
)
def test_a_replica_that_left_its_loop_is_named_as_a_whole(
    replicas: int, tensor: int, left: list[int]
) -> None:
    findings = job(replicas, tensor, left)
    gone = [rank for rank in range(replicas * tensor) if rank // tensor in left]
    assert [(one.cause, one.culprits) for one in findings] == [(Cause.COLLECTIVE_MISMATCH, gone)]
    assert findings[0].confidence > 0.7


def test_of_two_replicas_nothing_tells_which_left_too_soon() -> None:
    findings = job(2, 2, [1])
    assert findings
    for finding in findings:
        assert finding.confidence <= 0.6 and len(finding.culprits) > 1


@pytest.mark.parametrize(
    ("replicas", "left", "lost"), [(4, [0], [4, 5]), (7, [0, 1], [10, 11, 12, 13])]
)
def test_replicas_without_dumps_may_have_left_as_well(
    replicas: int, left: list[int], lost: list[int]
) -> None:
    findings = job(replicas, 2, left, lost)
    assert findings
    for finding in findings:
        assert finding.confidence <= 0.6 and len(finding.culprits) > 1


def skipping_job(replicas: int, tensor: int, left: int, lacks: int) -> list[Finding]:
    """Steps of four calls: one within a replica, two across these, between them the world's.

    In the last step a replica leaves out one of the middle two.
    """
    size, dumps = replicas * tensor, []
    for rank in range(size):
        replica, place = divmod(rank, tensor)
        across, within = str(1 + place), str(1 + tensor + replica)
        groups = {
            "0": range(size),
            across: range(place, size, tensor),
            within: range(replica * tensor, (replica + 1) * tensor),
        }
        calls = [
            call
            for step in range(STEPS)
            for call in (
                ("all_reduce", within, step + 1, 20),
                ("_reduce_scatter_base", across, 2 * step + 1, 30),
                ("all_reduce", "0", step + 1, 40),
                ("_all_gather_base", across, 2 * step + 2, 50),
            )
        ]
        stands = len(calls) - 3 + lacks
        if replica == left:
            op, group, _, line = calls[stands + 1]
            shifted = 2 * STEPS - 1 if group == across else STEPS
            calls[stands:] = [(op, group, shifted, line)]
        else:
            calls[stands + 1 :] = []
        rows = [
            Row(op, seq, group=group, line=line, done=number < len(calls) - 1)
            for number, (op, group, seq, line) in enumerate(calls)
        ]
        rows = [replace(row, extra={"thread_id": "140", "thread_name": "main"}) for row in rows]
        dumps.append(columns(rank, rows, members=groups, descriptions={across: "data"}))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize("lacks", [0, 1])
@pytest.mark.parametrize(("replicas", "tensor", "left"), [(4, 2, 1), (4, 4, 2), (3, 2, 0)])
def test_a_replica_that_left_a_call_out_is_named_as_a_whole(
    replicas: int, tensor: int, left: int, lacks: int
) -> None:
    """They wait in the world's call, or each in a group of its own, for what comes behind it."""
    findings = skipping_job(replicas, tensor, left, lacks)
    gone = list(range(left * tensor, (left + 1) * tensor))
    assert {one.cause for one in findings} == {Cause.SKIPPED_COLLECTIVE}
    assert sorted(rank for one in findings for rank in one.culprits) == gone
