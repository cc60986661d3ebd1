"""Exceptions that the job prints or logs and goes on: when they happened, and where from.

A traceback on stderr has no time.  Whether an exception is why a rank left
something out is a matter of what the rank did before it and since, so what
passes through the ``traceback`` module is written down with the time.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hanglab.recorder.rank.error_guard import GUARD
from hanglab.recorder.rank.exceptions import describe
from hanglab.recorder.rank.hooks import Hooked
from hanglab.recorder.rank.thread_frames import steady_frames

#: (exception) -> None; what it raises is dropped.
Note = Callable[[BaseException], None]

_FUNCTIONS = ("print_exception", "format_exception")
#: So many are written whatever their pace, then one a second.
_FIRST = 64
_PACE_NS = 1_000_000_000


class HandledWatch(Hooked):
    """Wraps the functions of ``traceback`` that print_exc, format_exc and logging end in.

    An exception that is formatted twice is noted twice: to know it again would be to
    keep it, and all that its frames hold.
    """

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note
        self._count = 0
        self._last_ns = 0

    def install(self, module: ModuleType) -> None:
        """``module`` is traceback.  Installing twice does nothing."""
        if self._hooks:
            return
        for name in _FUNCTIONS:
            original = getattr(module, name, None)
            if original is not None:
                self._hooks.put(module, name, self._wrapper(original))

    def _wrapper(self, original: Any) -> Any:
        # With its module: pickle looks it up by that name, and finds it.
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with GUARD:
                self._look(args, kwargs)
            return original(*args, **kwargs)

        return wrapper

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Either (exception) or (type, exception, traceback).
        given = [*args[:2], kwargs.get("value"), kwargs.get("exc")]
        value = next((one for one in given if isinstance(one, BaseException)), None)
        if value is None or value.__traceback__ is None:
            return
        now = time.monotonic_ns()
        if self._count >= _FIRST and now - self._last_ns < _PACE_NS:
            return
        self._count += 1
        self._last_ns = now
        self._note(value)


def pending_exceptions() -> list[dict[str, Any]]:
    """Exceptions in whose handlers other threads are at this moment, as records.Raised has them.

    That is an ``except`` or ``finally`` clause, or the ``__exit__`` of a context manager: what is
    called in there, as a barrier, shows the exception to nobody.
    """
    names = {thread.ident: thread for thread in threading.enumerate()}
    found = []
    with steady_frames:
        tops = sys._current_exceptions()
    for ident, current in tops.items():
        thread = names.get(ident)
        if thread is None or ident == threading.get_ident():
            continue
        # Until Python 3.11 it comes with its type and traceback.
        value = current[1] if isinstance(current, tuple) else current
        if isinstance(value, BaseException) and not thread.name.startswith("hanglab-"):
            main = thread is threading.main_thread()
            found.append(describe(value, value.__traceback__, thread.name, main))
    return found


def ends_the_process(value: BaseException) -> bool:
    """True if it was caught by torch's spawn, which hands its text to the parent and exits."""
    traceback = value.__traceback__
    if traceback is None:
        return False
    code = traceback.tb_frame.f_code
    return code.co_name == "_wrap" and code.co_filename.endswith("torch/multiprocessing/spawn.py")
