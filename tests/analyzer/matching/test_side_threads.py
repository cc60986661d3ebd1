"""A rank that stopped while an operation of a side group is open: what its peers passed holds none.

The side group is that of a checkpoint: its barrier comes from a thread of its own, or is started
by the main thread and waited for later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause

MAIN, SAVER = "7", "8"
Called = tuple[str, str, str, bool]
"""Operation, group, thread, and whether it has finished."""


def dump_of(rank: int, calls: Iterable[Called], size: int, backend: str) -> RankDump:
    numbers = Counter[str]()
    rows = []
    for op, group, thread, done in calls:
        numbers[group] += 1
        rows.append(
            Row(op, numbers[group], group, done, extra={"thread_id": thread, "thread_name": "pt"})
        )
    everybody = list(range(size))
    return columns(rank, rows, members={"0": everybody, "1": everybody}, backend=backend)


def steps(count: int) -> list[Called]:
    return [("all_reduce", "0", MAIN, True)] * count


def waiting(count: int) -> list[Called]:
    return [*steps(count), ("all_reduce", "0", MAIN, False)]


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize("thread", [MAIN, SAVER])
@pytest.mark.parametrize("stopped", [0, 2])
def test_the_rank_that_stopped_after_an_open_barrier_that_a_peer_went_on_from(
    size: int, backend: str, thread: str, stopped: int
) -> None:
    """The stopped rank issued the barrier last of all; another went on from it to a later step."""
    save: list[Called] = [("barrier", "1", thread, False)]
    other = 1
    ranks = {rank: waiting(5) for rank in range(size)}
    ranks[stopped] = [*steps(5), *save]
    ranks[other] = [*steps(4), *save, *waiting(5)[4:]]
    graph = build_wait_for_graph(
        [dump_of(rank, calls, size, backend) for rank, calls in ranks.items()]
    )
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [stopped])
    assert finding.collective is not None and finding.collective.group_id == "0"
    assert [sink.elsewhere for sink in graph.sinks] == [True]


def test_a_barrier_in_which_everybody_stands_keeps_its_ranks() -> None:
    """Then that is what has stopped, and not the rank that did nothing since."""
    save: Called = ("barrier", "1", MAIN, False)
    ranks = [
        [*steps(4), save, *waiting(4)[4:]],
        [*steps(4), save, *waiting(4)[4:]],
        [*steps(4), save],
    ]
    graph = build_wait_for_graph([dump_of(r, calls, 3, "gloo") for r, calls in enumerate(ranks)])
    assert graph.sinks == []


def test_a_side_thread_that_its_rank_may_have_yet_to_start_is_not_missed() -> None:
    """Ranks 1 and 2 have not saved yet: their main threads wait for rank 0, which stopped."""
    saves: list[Called] = [("barrier", "1", SAVER, True)]
    ranks = [
        [*steps(3), *saves, *steps(2), ("barrier", "1", SAVER, False)],
        [*steps(3), *saves, *waiting(5)[3:]],
        [*steps(3), *saves, *waiting(5)[3:]],
        [*steps(3), *saves, *waiting(5)[3:], ("barrier", "1", SAVER, False)],
    ]
    graph = build_wait_for_graph([dump_of(r, calls, 4, "gloo") for r, calls in enumerate(ranks)])
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [0])


def test_groups_in_opposite_order_stay_that() -> None:
    """Nobody has both open: each stands in the one that it entered first."""
    graph = build_wait_for_graph(
        [
            dump_of(0, [*steps(2), ("all_reduce", "1", MAIN, False)], 2, "nccl"),
            dump_of(1, [*steps(2), ("all_reduce", "0", MAIN, False)], 2, "nccl"),
        ]
    )
    (finding,) = synchronization_findings(graph)
    assert finding.cause is Cause.GROUP_ORDER


def test_what_is_queued_behind_the_same_open_operation_misses_nobody_else() -> None:
    """All have a step open, for which rank 2 stopped, and issued different numbers of later ones.

    Savers that finish meanwhile show that their devices went on, which is no proof that what is
    queued behind the step has begun.
    """
    saves: list[Called] = [("barrier", "1", SAVER, True)]
    queued: Called = ("all_reduce", "0", MAIN, False)
    ranks = [
        [*steps(3), *[queued] * 4, *saves],
        [*steps(3), *[queued] * 2, *saves],
        [*steps(3), *saves],
        [*steps(3), *[queued] * 3, *saves],
    ]
    graph = build_wait_for_graph([dump_of(r, calls, 4, "nccl") for r, calls in enumerate(ranks)])
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [2])


@pytest.mark.parametrize("first", [0, 1])
def test_operations_of_two_threads_do_not_queue_behind_each_other(first: int) -> None:
    """Everybody has entered both; on one rank the saver was sooner than the main thread."""
    both: list[Called] = [("all_reduce", "0", MAIN, False), ("barrier", "1", SAVER, False)]
    ranks = [[*steps(3), *both] for _ in range(3)]
    ranks[first] = [*steps(3), *both[::-1]]
    graph = build_wait_for_graph([dump_of(r, calls, 3, "nccl") for r, calls in enumerate(ranks)])
    assert synchronization_findings(graph) == []
    # Of one thread that is what swapped them.
    alone = [[(op, group, MAIN, done) for op, group, _, done in calls] for calls in ranks]
    graph = build_wait_for_graph([dump_of(r, calls, 3, "nccl") for r, calls in enumerate(alone)])
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.GROUP_ORDER, [first])


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_thread_stands_in_its_call_although_another_thread_went_on(wrong: int) -> None:
    """Savers of two ranks call one line on two groups; both main loops go on to their ends."""
    dumps = []
    for rank in range(2):
        group = "0" if rank == wrong else "2"
        calls = [*[("2", SAVER, True)] * 3, (group, SAVER, False), *[("1", MAIN, True)] * 3]
        numbers = Counter[str]()
        rows = []
        for name, thread, done in calls:
            numbers[name] += 1
            frame = {"name": "work", "filename": "/srv/train.py", "line": 30}
            extra = {"thread_id": thread, "thread_name": "pt", "frames": [frame]}
            rows.append(Row("all_reduce", numbers[name], name, done, extra=extra))
        dumps.append(columns(rank, rows, members={name: [0, 1] for name in "012"}))
    (cycle,) = build_wait_for_graph(dumps).cycles
    assert wrong in (cycle.deviating or cycle.candidates)
