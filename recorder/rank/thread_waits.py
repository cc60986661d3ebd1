"""Waits of threads: for what, and with or without a limit.

A stack shows that a thread waits on a condition or for a lock, but no timeout.
The variables of the standard library's frames do, and so does the system call
that the thread sleeps in.  No other frame's variables are looked at.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from types import FrameType
from typing import Any, NamedTuple

from hanglab.recorder.rank.thread_frames import steady_frames

#: Functions of the standard library that wait, by file: the name of the timeout.
_WAITS = {
    "threading.py": {"wait": "timeout", "join": "timeout"},
    "selectors.py": {"select": "timeout"},
    "popen_fork.py": {"wait": "timeout"},
    "subprocess.py": {"wait": "timeout", "_wait": "timeout"},
}
_KINDS = {"threading.py": "condition", "selectors.py": "selector"}
#: What frames further out make of the same wait.
_MEANINGS = {
    ("queue.py", "get"): "queue",
    ("queue.py", "put"): "queue",
    ("queue.py", "join"): "queue",
    ("_base.py", "result"): "future",
    ("_base.py", "exception"): "future",
    ("_base.py", "wait"): "future",
    ("pool.py", "get"): "pool",
    ("pool.py", "wait"): "pool",
    ("pool.py", "join"): "pool",
    ("base_events.py", "_run_once"): "loop",
}
#: Frames that are looked at, from the innermost.
_DEPTH = 8
#: Numbers of the system calls that wait for a futex, and the place of the timeout's address
#: among the arguments (linux/arch/*/entry/syscalls).
_FUTEX = {"x86_64": {202: 3}, "aarch64": {98: 3}}.get(platform.machine(), {})


#: Bit of a futex's operation that only threads of one process may set (linux/futex.h).
_PRIVATE = 128

#: Between two looks at a thread in a lock, in seconds: of the interpreter's own, which it passes
#: every time that it wants to run, it holds none so long without another to run in between.
_BETWEEN_S = 0.02


def thread_waits(stdlib: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every thread that waits in the standard library or for a lock, as records.ThreadWait has it.

    ``stdlib`` are the standard library's folders.
    """
    threads = {thread.ident: thread for thread in threading.enumerate()}
    found: list[dict[str, Any]] = []
    locks: dict[int, _FutexWait] = {}
    with steady_frames:
        tops = sys._current_frames()
    for ident, top in tops.items():
        thread = threads.get(ident)
        if thread is not None and thread.name.startswith("hanglab-"):
            continue
        main = thread is threading.main_thread()
        # After a fork a thread still bears the number of its parent's.
        number = os.getpid() if main else getattr(thread, "native_id", None)
        try:
            with steady_frames:
                wait = _wait_of(top, stdlib)
            lock = _lock_of(number) if wait is None else None
            if lock is not None:
                locks[len(found)] = lock
                wait = lock.wait
        except Exception:  # whatever a foreign object does when it is looked at
            continue
        if wait is not None:
            wait["os_thread_id"] = number
            wait["main"] = main
            found.append(wait)
    if locks:
        time.sleep(_BETWEEN_S)
    passing = {place for place, lock in locks.items() if _lock_of(lock.thread) != lock}
    return [wait for place, wait in enumerate(found) if place not in passing]


def _wait_of(top: FrameType, stdlib: tuple[str, ...]) -> dict[str, Any] | None:
    frame: FrameType | None = top
    wait: dict[str, Any] | None = None
    for _ in range(_DEPTH):
        if frame is None or not frame.f_code.co_filename.startswith(stdlib):
            break
        base = os.path.basename(frame.f_code.co_filename)
        name = frame.f_code.co_name
        if wait is None and name in _WAITS.get(base, {}):
            wait = _innermost(frame, base, name)
        elif wait is not None and (base, name) in _MEANINGS:
            wait["kind"] = _MEANINGS[base, name]
            if wait["kind"] == "loop":
                wait["watches"] = _watched(frame.f_locals.get("self"))
        frame = frame.f_back
    return wait


def _innermost(frame: FrameType, base: str, name: str) -> dict[str, Any]:
    names = frame.f_locals
    timeout = names.get(_WAITS[base][name])
    # A selector waits for ever with None or, depending on its kind, with -1.
    forever = timeout is None or (base == "selectors.py" and timeout < 0)
    wait: dict[str, Any] = {"kind": _KINDS.get(base, "process"), "forever": forever}
    if base == "threading.py" and name == "join":
        wait["kind"] = "thread"
        target = names.get("self")
        if isinstance(target, threading.Thread):
            wait["thread"] = target.native_id
            wait["thread_name"] = str(target.name)
    return wait


class _FutexWait(NamedTuple):
    """A futex in which a thread sleeps; another one if it has run in between."""

    thread: int
    address: str
    forever: bool
    #: Times that the thread went to sleep so far.
    sleeps: str
    #: It may be one of several processes.
    shared: bool

    @property
    def wait(self) -> dict[str, Any]:
        shared = _memory_at(int(self.address, 16)) if self.shared else ""
        return {"kind": "lock", "forever": self.forever, "shared": shared}


def _lock_of(thread: int | None) -> _FutexWait | None:
    """The futex that a thread waits for, which all of the interpreter's locks and queues are."""
    if thread is None:
        return None
    with open(f"/proc/self/task/{thread}/syscall", encoding="ascii") as file:
        words = file.read().split()
    # "running", or -1 and two addresses, where it is in no system call.
    place = _FUTEX.get(int(words[0])) if words[0].isdecimal() else None
    if place is None:
        return None
    with open(f"/proc/self/task/{thread}/status", encoding="ascii", errors="replace") as file:
        sleeps = next((line for line in file if line.startswith("voluntary_ctxt_switches")), "")
    shared = not int(words[2], 16) & _PRIVATE
    return _FutexWait(thread, words[1], int(words[1 + place], 16) == 0, sleeps, shared)


def _memory_at(address: int) -> str:
    """Device and inode of the file that is mapped at an address; "" where none is."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            span, _, _, device, inode, *_ = line.split()
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= address < last:
                return f"{device} {inode}" if inode != "0" else ""
    return ""


def _watched(loop: Any) -> int | None:
    """Files and sockets that an event loop listens to, without its own pipe; None if unknown."""
    selector = getattr(loop, "_selector", None)
    if selector is None:
        return None
    own = getattr(loop, "_ssock", None)
    number = own.fileno() if own is not None else -1
    return sum(1 for fd in selector.get_map() if fd != number)
