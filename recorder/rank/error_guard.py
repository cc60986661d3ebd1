"""Dropping the recorder's own errors in the job's thread, and nobody else's.

A signal handler runs wherever the main thread happens to be, also in the recorder's
own functions.  What it raises there (torch's word that a loader's worker has died,
the timeout of somebody's alarm) is meant for the job and has to reach it.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import CodeType, TracebackType
from typing import Any

#: How often handlers may interrupt the attempt to hold them back.
_ATTEMPTS = 3


class ErrorGuard:
    """A context manager that drops errors, unless a handler of the job has raised them."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(value, Exception) and not is_the_jobs(value)


#: It has no state: one is enough for all.
GUARD = ErrorGuard()


def is_the_jobs(error: BaseException) -> bool:
    """True if a signal handler raised it, while a frame of the recorder was being run."""
    traceback = error.__traceback__
    # A handler has a frame of its own below the one that catches.
    if traceback is None or traceback.tb_next is None:
        return False
    handlers = _handlers()
    while handlers and traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Holds the job's signal handlers back; for what is written in a rank's last moments.

    They are called afterwards, and what they raise then is dropped: nobody is left
    whom it would reach.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    held: dict[int, Any] = {}
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(Exception):  # from a handler that is not held yet
            _hold(held, lambda number, frame: came.append(number))
            break
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            with contextlib.suppress(Exception):
                signal.raise_signal(number)


def _hold(held: dict[int, Any], instead: Callable[[int, Any], None]) -> None:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if number not in held and _code_of(handler) is not None:
            held[number] = handler
            signal.signal(number, instead)


def _handlers() -> set[CodeType]:
    """The code of all signal handlers that are written in Python."""
    found = set()
    for number in signal.valid_signals():
        code = _code_of(signal.getsignal(number))
        if code is not None:
            found.add(code)
    return found


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None:
        code = getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
