"""Threads that a script starts by itself, in which torch's modes are entered: each has its own.

Without them a thread would make no tensor of the emulated device, and its operators would not wait
for it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

#: What makes a mode that every thread of the script is to have, in the order of entering.
_MODES: list[Callable[[], Any]] = []
#: Threads whose names begin so are not the script's.
OWN_PREFIX = "hanglab"


def use_in_threads(make: Callable[[], Any]) -> None:
    """Have threads that are started from now on run in the mode that ``make`` gives."""
    if not _MODES:
        _wrap_start()
    _MODES.append(make)


def _wrap_start() -> None:
    original = threading.Thread.start

    @functools.wraps(original)
    def start(thread: threading.Thread) -> None:
        if not thread.name.startswith(OWN_PREFIX):
            # Of the object: a class of the script's own may have another ``run``.
            thread.run = functools.partial(_run_in_modes, thread.run)  # type: ignore[method-assign]
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]


def _run_in_modes(run: Callable[[], None]) -> None:
    with contextlib.ExitStack() as entered:
        for make in _MODES:
            entered.enter_context(make())
        run()
