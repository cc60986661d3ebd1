"""Slots for jobs: never two holders, and free again however a holder ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from hanglab.harness.leases import CpuSlots

HOLDER = """
import sys, threading
from pathlib import Path
from hanglab.harness.leases import CpuSlots
with CpuSlots(Path(sys.argv[1]), 1).lease(threading.Event()) as slot:
    print(slot, flush=True)
    sys.stdin.read()
"""


def test_every_slot_has_one_holder(tmp_path: Path) -> None:
    slots = CpuSlots(tmp_path, 2)
    stop = threading.Event()
    told: list[str] = []

    def tell(reason: str) -> None:
        told.append(reason)
        stop.set()

    with slots.lease(stop) as first, slots.lease(stop) as second:
        assert {first, second} == {0, 1}
        with slots.lease(stop, tell) as third:
            assert third is None
    assert told == ["all 2 slots for jobs on this machine are taken"]
    with slots.lease(threading.Event()) as again:
        assert again == 0


def test_a_killed_holder_frees_its_slot(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"0\n"
        waiting = threading.Event()
        got: list[int | None] = []

        def wait() -> None:
            with CpuSlots(tmp_path, 1).lease(
                threading.Event(), lambda reason: waiting.set()
            ) as slot:
                got.append(slot)

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert waiting.wait(20)
        assert not got
        holder.kill()
        waiter.join(20)
        assert got == [0]
    finally:
        holder.kill()
        holder.wait()
        for stream in (holder.stdin, holder.stdout):
            if stream is not None:
                stream.close()
