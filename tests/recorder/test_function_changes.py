"""A loop that spins and a long call into native code, told apart by where the thread is seen."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.function_changes import FunctionChanges
from hanglab.recorder.rank.progress_file import ProgressFile

LOOKS = 20


def spin(over: list[bool]) -> None:
    """The tightest of loops: it begins anew at a single place."""
    for _ in iter(int, 1):
        if over:
            return


def compute(over: list[bool]) -> None:
    """One call that lets go of the interpreter's lock for longer than it is looked at."""
    while not over:
        hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 1_500_000)


def changes(tmp_path: Path, work: Callable[[list[bool]], None]) -> int:
    """How often the main thread was seen to have gone on while it does this."""
    progress = ProgressFile(tmp_path / "progress.bin")
    over: list[bool] = []

    def look() -> None:
        watch = FunctionChanges(progress, lambda file: file == __file__)
        while not progress.slots[Slot.STANDING_CHANGES]:
            watch.look()
        before = progress.slots[Slot.INSTRUCTION_CHANGES]
        for _ in range(LOOKS):
            # On a crowded machine the main thread may not have run between two looks.
            ran = time.clock_gettime(clock)
            while time.clock_gettime(clock) - ran < 0.005:
                time.sleep(0.001)
            watch.look()
        found.append(progress.slots[Slot.INSTRUCTION_CHANGES] - before)
        over.append(True)

    found: list[int] = []
    clock = time.pthread_getcpuclockid(threading.get_ident())
    looking = threading.Thread(target=look)
    looking.start()
    work(over)
    looking.join()
    return found[0]


def test_a_loop_that_spins_goes_on(tmp_path: Path) -> None:
    assert changes(tmp_path, spin) >= LOOKS - 1


def test_a_long_native_call_stands_still(tmp_path: Path) -> None:
    assert changes(tmp_path, compute) <= 1
