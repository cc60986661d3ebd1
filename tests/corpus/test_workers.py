"""Worker processes: results in order, whatever dies, and an end when somebody wants one."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from hanglab.harness.corpus.workers import WorkerDied, WorkerPool


def square(number: int) -> tuple[int, str]:
    if number in (3, 4, 17):
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number, os.getcwd()


def refuse(number: int) -> int:
    raise ValueError(f"not {number}")


@pytest.mark.slow
def test_who_dies_costs_its_own_item_alone_and_the_order_stays() -> None:
    pool: WorkerPool[int, tuple[int, str]] = WorkerPool(square, 2)
    results = list(pool.map(range(24)))
    assert len(results) == 24
    folders = set()
    for number, result in enumerate(results):
        if number in (3, 4, 17):
            assert isinstance(result, WorkerDied)
        else:
            assert not isinstance(result, WorkerDied) and result[0] == number * number
            folders.add(Path(result[1]))
    assert Path.cwd() not in folders and not any(folder.exists() for folder in folders)


def test_nothing_more_comes_once_it_is_stopped() -> None:
    stop = threading.Event()
    pool: WorkerPool[int, tuple[int, str]] = WorkerPool(square, 1)
    seen = []
    for result in pool.map([0, 1, 2, 5, 6, 7, 8, 9], stop):
        seen.append(result)
        if len(seen) == 2:
            stop.set()
    assert len(seen) == 2


def test_what_the_function_raises_is_raised() -> None:
    pool: WorkerPool[int, int] = WorkerPool(refuse, 1)
    with pytest.raises(ValueError, match="not 0"):
        list(pool.map([0, 1]))
