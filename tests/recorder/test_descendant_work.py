"""What the processes below a rank compute while it rests."""

from __future__ import annotations

import os
import subprocess
import sys

from conditions import wait_for

from hanglab.recorder.agent.descendant_work import DescendantWork
from hanglab.recorder.system import procfs

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_short_lived_children_count_once_they_are_gone() -> None:
    descendant_work = DescendantWork(os.getpid())
    descendant_work.begin([], now=100.0)
    for _ in range(3):
        subprocess.run([sys.executable, "-S", "-c", BURN], check=True)
    assert 0.8 <= descendant_work.share([], now=101.0) < 2.0
    descendant_work.forget()
    assert descendant_work.share([], now=102.0) == 0.0
    descendant_work.begin([], now=200.0)
    assert descendant_work.share([], now=201.0) == 0.0


def test_a_child_keeps_what_it_used_when_it_ends() -> None:
    descendant_work = DescendantWork(os.getpid())
    child = subprocess.Popen([sys.executable, "-S", "-c", BURN], stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: procfs.stat(child.pid).state == "Z", "the child to end")  # type: ignore[union-attr]
        descendant_work.begin([child.pid], now=100.0)
    finally:
        child.wait()
    # All of it lay before the rest began.
    assert descendant_work.share([], now=101.0) < 0.1
