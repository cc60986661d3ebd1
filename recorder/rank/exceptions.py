"""Exceptions that reach the top of a thread, written down before the interpreter prints them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from hanglab.recorder.rank.error_guard import undisturbed
from hanglab.recorder.rank.full_file_systems import chain, full_disks

_MESSAGE_BYTES = 4096
_FRAMES = 256

#: Gets the exception as records.Raised has it.
Write = Callable[[dict[str, Any]], None]


class ExceptionWatch:
    """Puts itself before sys.excepthook and threading.excepthook, whoever set them before.

    ``write`` gets the exception, ``look`` before it the traceback of the main
    thread's; whatever they raise is dropped.
    """

    def __init__(self, write: Write, look: Callable[[TracebackType | None], None]) -> None:
        self._write = write
        self._look = look
        self._seen: BaseException | None = None
        self._hooks: tuple[Any, Any] | None = None

    def install(self) -> None:
        previous, previous_thread = sys.excepthook, threading.excepthook
        self._hooks = previous, previous_thread

        def excepthook(
            type_: type[BaseException],
            value: BaseException,
            traceback: TracebackType | None,
        ) -> None:
            self.note(value, traceback, "MainThread", True)
            previous(type_, value, traceback)

        def thread_excepthook(args: threading.ExceptHookArgs) -> None:
            if args.exc_value is not None and args.exc_type is not SystemExit:
                name = args.thread.name if args.thread is not None else ""
                self.note(args.exc_value, args.exc_traceback, name, False)
            previous_thread(args)

        # Where pickle finds them.
        for ours, module in ((excepthook, "sys"), (thread_excepthook, "threading")):
            ours.__module__, ours.__qualname__ = module, "excepthook"
        sys.excepthook = excepthook
        threading.excepthook = thread_excepthook
        self._ours = excepthook, thread_excepthook

    def uninstall(self) -> None:
        """Put the hooks back, unless somebody has replaced ours meanwhile."""
        if self._hooks is None:
            return
        if sys.excepthook is self._ours[0]:
            sys.excepthook = self._hooks[0]
        if threading.excepthook is self._ours[1]:
            threading.excepthook = self._hooks[1]
        self._hooks = None

    def look_back(self) -> None:
        """Note what the interpreter reported last, where a later hook kept it from ours."""
        value = getattr(sys, "last_value", None)
        if isinstance(value, BaseException) and not isinstance(value, SystemExit):
            self.note(value, value.__traceback__, "MainThread", True)

    def note(
        self,
        value: BaseException,
        traceback: TracebackType | None,
        thread: str,
        main: bool,
    ) -> None:
        if value is self._seen:
            return
        with undisturbed():
            # Until then a handler may interrupt: ``look_back`` notes what is not seen yet.
            self._seen = value
            if main:
                with contextlib.suppress(Exception):
                    self._look(traceback)
            with contextlib.suppress(Exception):
                self._write(describe(value, traceback, thread, main))


def describe(
    value: BaseException, traceback: TracebackType | None, thread: str, main: bool
) -> dict[str, Any]:
    """An exception as records.Raised has it, at this moment."""
    return {
        "at": {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()},
        "type": _qualified(value),
        "message": _message(value),
        "frames": _frames(traceback),
        "thread": thread,
        "main": main,
        "because": [f"{_qualified(error)}: {_message(error)}" for error in chain(value)[1:]],
        "full": full_disks(value),
    }


def _qualified(value: BaseException) -> str:
    """The name of its type, with the module unless it is builtin or the program's own."""
    type_ = type(value)
    name = type_.__qualname__
    if type_.__module__ not in ("builtins", "__main__"):
        name = f"{type_.__module__}.{name}"
    return name


def _message(value: BaseException) -> str:
    try:
        return str(value)[:_MESSAGE_BYTES]
    except Exception as error:
        return f"<its text cannot be had: {type(error).__name__}>"


def _frames(traceback: TracebackType | None) -> list[dict[str, Any]]:
    """Frames, innermost first, as records.Frame has them."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append(
            {"function": code.co_name, "file": code.co_filename, "line": traceback.tb_lineno}
        )
        traceback = traceback.tb_next
    return found[::-1][:_FRAMES]
