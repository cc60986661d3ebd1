"""Locks of files that ranks wait for, and the ranks that hold them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.recorder.system.file_locks import holder_of, wanted_locks

FLOCK = "import fcntl; fcntl.flock(file, fcntl.LOCK_EX)"
POSIX = "import fcntl; fcntl.lockf(file, fcntl.LOCK_EX)"
KEEP = "print('held', flush=True); import time; time.sleep(600)"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children = []

    def begin(*lines: str) -> subprocess.Popen[str]:
        code = "\n".join([f"file = open({str(tmp_path / 'lock')!r}, 'a')", *lines])
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, text=True
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.parametrize(("kind", "take"), [("FLOCK", FLOCK), ("POSIX", POSIX)])
def test_the_holder_of_a_wanted_lock(start: Start, tmp_path: Path, kind: str, take: str) -> None:
    holder = start(take, KEEP)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    bystander, waiter = start(KEEP), start(take, KEEP)
    wait_for(lambda: any(one.pid == waiter.pid for one in wanted_locks()), "the waiter to wait")
    (wanted,) = [one for one in wanted_locks() if one.pid == waiter.pid]
    assert wanted.kind == kind
    pids = [waiter.pid, bystander.pid, holder.pid]
    assert holder_of(wanted, pids) == (holder.pid, str(tmp_path / "lock"))
    assert holder_of(wanted, pids[:2]) is None


def test_a_lock_is_kept_by_a_child_of_who_took_it(start: Start, tmp_path: Path) -> None:
    parent = start(
        FLOCK,
        "import os",
        "child = os.fork()",
        "if child: print(child, flush=True); os._exit(0)",
        "import time; time.sleep(600)",
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert parent.wait() == 0
        waiter = start(FLOCK, KEEP)
        wait_for(lambda: any(one.pid == waiter.pid for one in wanted_locks()), "the waiter")
        (wanted,) = [one for one in wanted_locks() if one.pid == waiter.pid]
        assert holder_of(wanted, [child]) == (child, str(tmp_path / "lock"))
    finally:
        subprocess.run(["kill", "-9", str(child)], check=True)
