"""Recurses for so many seconds while the recorder's looks walk its frames.  argv: seconds, looks.

Collections, each with a callback in Python as the recorder's own, start as often as they can.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time

from hanglab.recorder.rank import code_shapes, handled_exceptions, service, thread_waits
from hanglab.recorder.rank.function_changes import FunctionChanges
from hanglab.recorder.rank.line_samples import LineSampler


class Progress:
    """Counters that nobody reads."""

    slots = [0] * 512


LOOKS = {
    "standing": FunctionChanges(Progress(), lambda file: True).look,  # type: ignore[arg-type]
    "lines": LineSampler(lambda file: False, lambda thread: "").look,
    "stacks": service.current_stacks,
    "shapes": lambda: code_shapes.standing_code(lambda file: False),
    "pending": handled_exceptions.pending_exceptions,
    "waits": lambda: thread_waits.thread_waits(("/",)),
}


def walk() -> None:
    while True:
        LOOKS[sys.argv[2]]()


def recurse(depth: int) -> None:
    if depth == 0:
        os.path.exists("/nonexistent")
        return
    recurse(depth - 1)
    [[] for _ in range(3)]


sys.setswitchinterval(1e-5)
gc.set_threshold(5, 5, 5)
gc.callbacks.append(lambda phase, info: [None for _ in range(50)] and None)
threading.Thread(target=walk, daemon=True).start()
until = time.monotonic() + float(sys.argv[1])
turn = 0
while time.monotonic() < until:
    recurse(turn % 150)
    turn += 1
print(turn, flush=True)
os._exit(0)
