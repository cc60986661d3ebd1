"""One child may read for many pools, and is held to the limits of a new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from dump_builders import dump, torch_pickle

from hanglab.analyzer.flight_recorder.kept_child import KeptChild, KeptChildPool
from hanglab.analyzer.flight_recorder.worker_pool import Limits, Lost


@pytest.fixture
def kept() -> Iterator[KeptChild]:
    """A place for a child, which ends with the test."""
    place = KeptChild()
    yield place
    place.end()


def run(kept: KeptChild, function: Callable[[int], Any], *items: int) -> list[Any]:
    limits = Limits(0.3, 64 << 20)
    results = dict(KeptChildPool(function, items, lambda item: limits, kept=kept).run())
    return [results[number] for number in range(len(items))]


def pid(item: int) -> int:
    return os.getpid()


def large(item: int) -> bytes:
    return b"x" * item


def fails(item: int) -> int:
    """Whatever a file may do to its reader."""
    if item == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    while item == 2:
        pass
    return len(b"x" * (1 << 30)) if item == 3 else item


def test_one_child_serves_pool_after_pool(kept: KeptChild) -> None:
    first, second = run(kept, pid, 1, 2, 3), run(kept, pid, 1)
    assert set(first) == set(second)
    assert os.getpid() not in first


def test_items_and_results_larger_than_a_pipe(kept: KeptChild) -> None:
    assert [len(one) for one in run(kept, large, 3_000_000, 0, 2_000_000)] == [
        3_000_000, 0, 2_000_000,
    ]  # fmt: skip


def test_what_one_item_does_costs_that_item_alone(kept: KeptChild) -> None:
    before = run(kept, pid, 0)
    assert run(kept, fails, 0, 1, 4, 2, 5, 3, 6) == [
        0,
        Lost("makes its reader die of SIGSEGV"),
        4,
        Lost("takes more than 0.3 s of processor time"),
        5,
        Lost("asks for more memory than a dump needs"),
        6,
    ]
    after = run(kept, pid, 0)
    assert after != before and not psutil.pid_exists(before[0])


def interrupts(item: int) -> int:
    os.write(item, str(os.getpid()).encode())
    os.kill(os.getppid(), signal.SIGINT)
    signal.pause()
    return item


def test_a_child_that_is_interrupted_in_its_work_is_not_kept(kept: KeptChild) -> None:
    reads, writes = os.pipe()
    # The child is a fork, which has the pipe too.
    with pytest.raises(KeyboardInterrupt):
        run(kept, interrupts, writes)
    os.close(writes)
    with open(reads) as told:
        assert not psutil.pid_exists(int(told.read()))
    assert kept.take() is None


LOADING = """
import os, sys
from pathlib import Path
import psutil
from hanglab.analyzer.engine import analyze
from hanglab.analyzer.flight_recorder.loading import keep_reader
keep_reader()
seen = []
for _ in range(3):
    analyze(Path(sys.argv[1]))
    seen += [child.pid for child in psutil.Process().children()]
print(len(seen), *set(seen), flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"dump_{rank}").write_bytes(torch_pickle(dump()))
    with subprocess.Popen(
        [sys.executable, "-c", LOADING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        times, child = parent.stdout.readline().split()
        assert times == "3"
        reader = psutil.Process(int(child))
        parent.communicate("die\n")
        reader.wait(timeout=280)
