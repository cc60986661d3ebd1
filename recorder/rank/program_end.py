"""The end of the rank's Python: the call that ends it, or the end of its program, with its line.

An exit code says neither.  A rank that ended well, too early for its peers, left no
exception and no stack: all that is known of its end is what it called.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from hanglab.recorder.rank.error_guard import GUARD
from hanglab.recorder.rank.hooks import Hooked

#: Calls that raise are written as they come up to so many; of more, the latest at the end.
_MOST = 64

#: Gets the end as records.ProgramEnd has it.
Write = Callable[[dict[str, Any]], None]


class ProgramEndWatch(Hooked):
    """Wraps ``sys.exit``, ``os._exit`` and the interpreter's ``exit`` and ``quit``.

    Each does what it did.  In a forked child, and for ``sys.exit`` in a thread other than
    the main one, which ends only that thread, nothing is written.  Once the main program is
    through, only an ``os._exit`` that a line of the user's calls counts: multiprocessing ends
    its children with one of its own.
    """

    def __init__(self, user_code: Callable[[str], bool], write: Write) -> None:
        super().__init__()
        self._user_code = user_code
        self._write = write
        self._pid = os.getpid()
        self._ended = False
        self._raising = 0
        #: The latest of those that are too many.
        self._late: dict[str, Any] | None = None

    def install(self) -> None:
        """Wrapping twice does nothing."""
        if self._hooks:
            return
        self._hooks.put(sys, "exit", self._caller("sys.exit", sys.exit))
        self._hooks.put(os, "_exit", self._caller("os._exit", os._exit))
        with contextlib.suppress(ImportError):
            from _sitebuiltins import Quitter

            self._hooks.put(Quitter, "__call__", self._quitter(Quitter.__call__))

    def end(self) -> None:
        """The main program is through, or what it raised to end has reached the top."""
        if self._ended:
            return
        self._ended = True
        if self._late is not None:
            self._put(self._late)
        self._put(_program_end("end", None, None))

    def _caller(self, how: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def leave(*args: Any, **kwargs: Any) -> Any:
            with GUARD:
                self._note(how, args, sys._getframe(1))
            return original(*args, **kwargs)

        # Where pickle finds it: os._exit says that it is posix's, where it is not wrapped.
        leave.__module__ = how.partition(".")[0]
        return leave

    def _quitter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(quitter: Any, code: Any = None) -> Any:
            with GUARD:
                self._note(str(quitter.name), (code,), sys._getframe(1))
            return original(quitter, code)

        return __call__

    def _note(self, how: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            return
        at_once, thread = how == "os._exit", threading.current_thread()
        main = thread is threading.main_thread()
        if not at_once and not main:
            return
        if self._ended and not (at_once and frame and self._user_code(frame.f_code.co_filename)):
            return
        name = "" if main else thread.name
        end_call = _program_end(how, _code(args), self._user_line(frame), name)
        if not at_once:
            self._raising += 1
            if self._raising > _MOST:
                self._late = end_call
                return
        self._put(end_call)

    def _user_line(self, frame: FrameType | None) -> dict[str, Any] | None:
        """Innermost line of the user's, as records.Frame has it."""
        while frame is not None:
            code = frame.f_code
            if self._user_code(code.co_filename):
                return {
                    "function": code.co_name,
                    "file": code.co_filename,
                    "line": frame.f_lineno or 0,
                }
            frame = frame.f_back
        return None

    def _put(self, end_call: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._write(end_call)


def _program_end(
    how: str, code: int | None, frame: dict[str, Any] | None, thread: str = ""
) -> dict[str, Any]:
    at = {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}
    return {"at": at, "how": how, "code": code, "frame": frame, "thread": thread}


def _code(args: tuple[Any, ...]) -> int:
    """The exit code that these arguments mean: a text is printed and counts as 1."""
    status = args[0] if args else None
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1
