"""Dumps of an all_to_all that two ranks alone have not ended, and of what only looks like it."""

from __future__ import annotations

import os
import time
from itertools import combinations
from pathlib import Path

import pytest
from graph_rows import Row, dump_object, line_frames, world

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Cause, Status, Verdict

SIZE = 4


def verdict_on(
    folder: Path,
    stuck: tuple[int, ...],
    *,
    op: str = "all_to_all",
    lost: int | None = None,
    odd_line: int | None = None,
    follows: bool = True,
) -> Verdict:
    """Verdict where ``stuck`` are in an operation that all others have ended.

    The rank ``odd_line`` calls it from another line.  ``follows``: all are queued for the next.
    """
    for rank in range(SIZE):
        rows = [
            Row("all_reduce", 1),
            Row(
                op,
                2,
                done=rank not in stuck,
                extra={"frames": line_frames(30 if rank == odd_line else 20)},
            ),
            *([Row("all_reduce", 3, done=False)] if follows else []),
        ]
        if rank != lost:
            made = dump_object(rows, members=world(SIZE))
            (folder / f"rank_{rank}").write_bytes(torch_pickle(made))
    return analyze(folder)


@pytest.mark.parametrize("stuck", [*combinations(range(SIZE), 2)])
def test_the_two_are_named(tmp_path: Path, stuck: tuple[int, int]) -> None:
    verdict = verdict_on(tmp_path, stuck)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.SPLIT_MISMATCH)
    assert verdict.culprits == list(stuck)
    assert set(verdict.victims) == set(range(SIZE)) - set(stuck)
    assert "alone have not ended all_to_all" in verdict.summary


@pytest.mark.parametrize("stuck", [(1,), (0, 1, 2)])
def test_one_alone_or_three_are_no_pair(tmp_path: Path, stuck: tuple[int, ...]) -> None:
    assert verdict_on(tmp_path, stuck).cause is not Cause.SPLIT_MISMATCH


@pytest.mark.parametrize("lost", [0, 3])
def test_a_rank_without_a_dump_may_be_the_other_end(tmp_path: Path, lost: int) -> None:
    assert verdict_on(tmp_path, (1, 2), lost=lost).cause is not Cause.SPLIT_MISMATCH


def test_other_operations_have_no_parts_for_each_pair(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, (1, 2), op="all_gather").cause is not Cause.SPLIT_MISMATCH


@pytest.mark.parametrize("odd", [1, 2])
def test_calls_of_two_lines_are_no_exchange_of_theirs(tmp_path: Path, odd: int) -> None:
    """One of them makes another call of the program; nobody's device stopped, either."""
    assert verdict_on(tmp_path, (1, 2), odd_line=odd).status is Status.INCONCLUSIVE


@pytest.mark.parametrize("op", ["broadcast", "all_reduce"])
@pytest.mark.parametrize("rank", [0, 2])
def test_who_alone_has_not_ended_is_named_though_nobody_waits_for_it(
    tmp_path: Path, rank: int, op: str
) -> None:
    verdict = verdict_on(tmp_path, (rank,), op=op, follows=False)
    assert (verdict.status, verdict.cause) == (Status.HUNG, Cause.MISSING_RANK)
    assert (verdict.culprits, verdict.victims) == ([rank], [])
    assert ("another rank for the root" in verdict.summary) == (op == "broadcast")


@pytest.mark.parametrize("op", ["broadcast", "all_reduce"])
def test_a_rank_without_a_dump_may_wait_as_well(tmp_path: Path, op: str) -> None:
    assert verdict_on(tmp_path, (2,), op=op, lost=3, follows=False).status is Status.INCONCLUSIVE


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("copied", [False, True])
def test_a_job_on_its_way_is_not_told_as_that(tmp_path: Path, rank: int, copied: bool) -> None:
    """One rank was dumped a moment before the others; copies may have lost the files' times."""
    now = time.time_ns()
    for one in range(SIZE):
        rows = [
            Row(
                "all_reduce",
                number + 1,
                done=one != rank or number < 9,
                extra={
                    "time_created_ns": now + (number - 10) * 20_000_000,
                    "time_discovered_completed_ns": now + (number - 10) * 20_000_000 + 9_000_000
                    if one != rank or number < 9
                    else None,
                },
            )
            for number in range(10)
        ]
        file = tmp_path / f"rank_{one}"
        file.write_bytes(torch_pickle(dump_object(rows, members=world(SIZE))))
        written = now + (3 * 86_400 * 10**9 if copied else 0)
        os.utime(file, ns=(written, written))
    assert analyze(tmp_path).status in (Status.INCONCLUSIVE, Status.HEALTHY)
