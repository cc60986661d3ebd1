"""Workers may die: each death costs one item, and none is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from dump_builders import dump, torch_pickle

from hanglab.analyzer.flight_recorder import worker_pool
from hanglab.analyzer.flight_recorder.worker_pool import Limits, Lost, Pool


def run(
    function: Callable[[int], Any],
    count: int,
    *,
    seconds: float = 5.0,
    seconds_of: Mapping[int, float] | None = None,
) -> dict[int, Any]:
    def limits(item: int) -> Limits:
        return Limits((seconds_of or {}).get(item, seconds), 64 << 20)

    pool: Pool[int, Any] = Pool(function, range(count), limits, count=2)
    results = list(pool.run())
    assert len(results) == count
    return dict(results)


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children()}
    yield
    assert {child.pid for child in psutil.Process().children()} == before


def test_every_item_has_its_result() -> None:
    assert run(lambda item: item * item, 100) == {n: n * n for n in range(100)}


def test_results_larger_than_a_pipe() -> None:
    results = run(lambda item: b"x" * (item * 1_000_000), 5)
    assert [len(results[n]) for n in range(5)] == [n * 1_000_000 for n in range(5)]


def test_a_death_costs_one_item() -> None:
    def function(item: int) -> int:
        if item % 5 == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        return item

    results = run(function, 20)
    for item, result in results.items():
        if item % 5 == 0:
            assert result == Lost("makes its reader die of SIGSEGV")
        else:
            assert result == item


def test_an_endless_loop_ends_with_its_processor_time() -> None:
    def function(item: int) -> int:
        while item == 3:
            pass
        return item

    results = run(function, 6, seconds=0.2)
    assert results[3] == Lost("takes more than 0.2 s of processor time")
    assert [results[n] for n in (0, 1, 2, 4, 5)] == [0, 1, 2, 4, 5]


def test_an_item_that_blocks_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_WALL_GRACE_S", 0.0)
    monkeypatch.setattr(worker_pool, "_WALL_FACTOR", 1.0)

    def function(item: int) -> int:
        if item == 1:
            signal.pause()
        return item

    results = run(function, 3, seconds=100.0, seconds_of={1: 0.5})
    assert results == {0: 0, 1: Lost("could not be read in time"), 2: 2}


def test_memory_has_a_limit() -> None:
    def function(item: int) -> int:
        return len(b"x" * (1 << 30)) if item == 2 else item

    results = run(function, 4)
    assert results[2] == Lost("asks for more memory than a dump needs")
    assert results[3] == 3


def test_no_items() -> None:
    assert run(lambda item: item, 0) == {}


def test_results_that_nobody_waits_for_end_the_workers() -> None:
    limits = Limits(5.0, 64 << 20)
    pool: Pool[int, int] = Pool(lambda item: item, range(1000), lambda item: limits, count=2)
    results = pool.run()
    assert isinstance(next(results), tuple)
    results.close()  # type: ignore[attr-defined]


LOADING = """
import os, sys
from pathlib import Path
from hanglab.analyzer.flight_recorder import map_folder
def slow(dump):
    os.write(1, b"working\\n")
    while True:
        pass
map_folder(Path(sys.argv[1]), slow, workers=2, deadline_s=1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path: Path, number: int) -> None:
    for rank in range(4):
        (tmp_path / f"dump_{rank}").write_bytes(torch_pickle(dump()))
    parent = subprocess.Popen(
        [sys.executable, "-c", LOADING, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    children: list[psutil.Process] = []
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"working\n"
        children = psutil.Process(parent.pid).children()
        assert children
        parent.send_signal(number)
        parent.wait(timeout=280)
        _, alive = psutil.wait_procs(children, timeout=280)
        assert not alive
    finally:
        for process in [parent, *children]:
            try:
                process.kill()
            except (psutil.NoSuchProcess, ProcessLookupError):
                pass
        parent.communicate()


def test_time_of_one_small_file(tmp_path: Path) -> None:
    """A worker starts in milliseconds, so that eight ranks cost next to nothing."""
    from hanglab.analyzer.flight_recorder import load_bytes

    data = torch_pickle(dump())
    best = 1e9
    for _ in range(5):
        started = time.monotonic()
        load_bytes(data, rank=0, source="x")
        best = min(best, time.monotonic() - started)
    assert best < 1.0
