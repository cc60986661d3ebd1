"""Stacks of a process from outside, by py-spy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from hanglab.recorder.case.records import StackFrame, ThreadStack

#: A py-spy that takes longer than this is given up, in seconds; reading the tables of
#: torch's libraries takes several.
_PATIENCE = 3.0
_NATIVE_PATIENCE = 30.0

#: The file in which torch starts the processes of its spawn.
_SPAWN = "torch/multiprocessing/spawn.py"

#: Stands for what the code of a rank does: see :func:`position`.
Position = frozenset[tuple[tuple[str, str], ...]]


class FrameLocals(NamedTuple):
    """A frame of a main thread, with its variables as Python shows them."""

    frame: StackFrame
    values: dict[str, str]


class NoStacks(Exception):
    """The stacks could not be had; its text says why."""


@cache
def py_spy() -> str | None:
    """py-spy's path: that of this interpreter's environment, else the one on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def threads_of(pid: int, stopped: bool) -> list[ThreadStack]:
    """Every thread of a Python process, without the recorder's own.

    ``stopped``: it is in state T or D, so py-spy must not try to pause it.
    Raises NoStacks.
    """
    rows = _dump(pid, *(["--nonblocking"] if stopped else []))
    try:
        threads = [_thread(row, pid) for row in rows]
    except (KeyError, TypeError) as error:
        raise NoStacks(f"py-spy's answer cannot be read: {error}") from None
    return [thread for thread in threads if not thread.name.startswith("hanglab-")]


def native_threads_of(pid: int) -> list[ThreadStack]:
    """Every thread with the frames of native code between those of Python.

    The process is paused for it, for seconds at the first time.  Raises NoStacks.
    """
    try:
        return [_thread(row, pid) for row in _dump(pid, "--native", patience=_NATIVE_PATIENCE)]
    except (KeyError, TypeError) as error:
        raise NoStacks(f"py-spy's answer cannot be read: {error}") from None


def spawn_number(pid: int) -> int | None:
    """The number of a process of ``torch.multiprocessing.spawn``; None if it is none.

    Of all variables on the stack only that of torch's own frame is looked at.
    Raises NoStacks.
    """
    try:
        for row in _dump(pid, "--nonblocking", "--locals"):
            for frame in row["frames"]:
                if frame["name"] == "_wrap" and frame["filename"].endswith(_SPAWN):
                    for variable in frame.get("locals") or ():
                        if variable["name"] == "i" and str(variable["repr"]).isdecimal():
                            return int(variable["repr"])
    except (KeyError, TypeError) as error:
        raise NoStacks(f"py-spy's answer cannot be read: {error}") from None
    return None


def locals_of(pid: int, stopped: bool) -> list[FrameLocals]:
    """The main thread's frames with their variables, innermost first.

    ``stopped`` as in :func:`threads_of`.  Raises NoStacks.
    """
    options = ["--locals", *(["--nonblocking"] if stopped else [])]
    try:
        rows = [row for row in _dump(pid, *options) if row.get("os_thread_id") == pid]
        return [
            FrameLocals(
                StackFrame(str(f["name"]), str(f["filename"]), int(f["line"] or 0)),
                {str(v["name"]): str(v["repr"]) for v in f.get("locals") or ()},
            )
            for row in rows
            for f in row["frames"]
        ]
    except (KeyError, TypeError) as error:
        raise NoStacks(f"py-spy's answer cannot be read: {error}") from None


def _dump(pid: int, *options: str, patience: float = _PATIENCE) -> list[dict[str, Any]]:
    program = py_spy()
    if program is None:
        raise NoStacks("py-spy is not installed")
    command = [program, "dump", "--json", "--pid", str(pid), *options]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoStacks(f"py-spy did not finish within {patience:g} s") from None
    except OSError as error:
        raise NoStacks(f"py-spy cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise NoStacks(_reason(done.stderr.decode("utf-8", "replace")))
    try:
        return msgspec.json.decode(done.stdout, type=list[dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise NoStacks(f"py-spy's answer cannot be read: {error}") from None


def _thread(row: dict[str, Any], pid: int) -> ThreadStack:
    os_thread_id = row.get("os_thread_id")
    return ThreadStack(
        frames=[
            StackFrame(str(f["name"]), str(f["filename"]), int(f["line"] or 0))
            for f in row["frames"]
        ],
        name=str(row.get("thread_name") or ""),
        os_thread_id=os_thread_id,
        main=os_thread_id == pid,
        active=bool(row.get("active")),
        owns_gil=bool(row.get("owns_gil")),
    )


def _reason(text: str) -> str:
    lines = [line.removeprefix("Error:").strip() for line in text.splitlines() if line.strip()]
    if "Permission denied" in text or "Operation not permitted" in text:
        return "py-spy may not look into the process: ptrace is refused"
    return "py-spy: " + ("; ".join(lines)[:300] or "failed without a word")


def position(threads: Iterable[ThreadStack], user_code: Callable[[str], bool]) -> Position:
    """Position of the user's code: per thread the functions, without lines.

    Of the main thread, where it runs no user code, all functions.  Other threads
    without user code are libraries' own and may flicker for ever.
    """
    found = set()
    for thread in threads:
        functions = tuple((f.file, f.function) for f in thread.frames if user_code(f.file))
        if not functions and thread.main:
            functions = tuple((f.file, f.function) for f in thread.frames)
        if functions:
            found.add(functions)
    return frozenset(found)
