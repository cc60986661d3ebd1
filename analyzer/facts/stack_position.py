"""Position of a thread, by the frames of torch and of the standard library on its stack."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hanglab.analyzer.code_owners import CodeMap, Owner
from hanglab.recorder.case.records import StackFrame, StackSample, ThreadStack


class StackPlace(str, Enum):
    COMMUNICATION = "communication"
    GROUP_CREATION = "group_creation"
    RENDEZVOUS = "rendezvous"
    TEARDOWN = "teardown"
    LOADER = "loader"
    QUEUE = "queue"
    CONDITION = "condition"
    JOIN = "join"
    USER = "user"
    UNKNOWN = "unknown"


_C10D = "torch/distributed/distributed_c10d.py"
_LOADER = ("torch/utils/data/dataloader.py", "torch/utils/data/_utils/fetch.py")
_CREATION = frozenset({"new_group", "_new_group_with_tag", "split_group", "new_subgroups"})
_RENDEZVOUS = frozenset({"init_process_group"})
_TEARDOWN = frozenset({"destroy_process_group", "_abort_process_group"})
_CALLING = frozenset({StackPlace.COMMUNICATION, StackPlace.GROUP_CREATION})
_SHUTDOWN = frozenset({"_shutdown", "_exit_function", "_run_exitfuncs", "_python_exit"})


@dataclass(frozen=True)
class StackPosition:
    """``user`` is the innermost frame of user code, ``users`` all of them, innermost first."""

    place: StackPlace
    user: StackFrame | None
    users: tuple[StackFrame, ...] = ()
    #: Function of torch or the standard library that decided the place.
    inside: str = ""
    active: bool = False
    owns_gil: bool = False
    #: True where the innermost frame of all is the user's own: it waits in a call into C, or runs.
    innermost_is_user: bool = False


def _place(frames: list[StackFrame], code: CodeMap) -> tuple[StackPlace, str]:
    """The place that the innermost telling frame gives, and its function."""
    for frame in frames:
        owner = code.owner(frame.file)
        if owner is Owner.USER:
            # Frames outside of this one were called around it (a main loop
            # in a loader's fetch, say), and the second pass looks at them.
            break
        if frame.file.endswith(_C10D):
            return _c10d_place(frames), frame.function
        if frame.file.endswith(_LOADER):
            return StackPlace.LOADER, frame.function
        if owner is Owner.STDLIB:
            base = frame.file.rsplit("/", 1)[-1]
            if frame.function in _SHUTDOWN and base in ("threading.py", "util.py", "thread.py"):
                return StackPlace.TEARDOWN, frame.function
            if base == "queue.py" and frame.function in ("get", "put", "join"):
                # A loader that pins memory has its batches from a thread of its own.
                of_loader = any(f.file.endswith(_LOADER) for f in frames[:6])
                return StackPlace.LOADER if of_loader else StackPlace.QUEUE, frame.function
            if base == "threading.py" and frame.function in ("join", "_wait_for_tstate_lock"):
                outer = {f.function for f in frames}
                if "_shutdown" in outer:
                    return StackPlace.TEARDOWN, "_shutdown"
                return StackPlace.JOIN, frame.function
            if base == "threading.py" and frame.function in ("wait", "wait_for", "acquire"):
                if not any(f.file.endswith(("queue.py", *_LOADER)) for f in frames[:6]):
                    return StackPlace.CONDITION, frame.function
    for frame in frames:
        if frame.file.endswith(_LOADER):
            return StackPlace.LOADER, frame.function
        if frame.function in _SHUTDOWN and code.owner(frame.file) is Owner.STDLIB:
            return StackPlace.TEARDOWN, frame.function
    if any(code.owner(frame.file) is Owner.USER for frame in frames):
        return StackPlace.USER, ""
    return (StackPlace.USER, "") if frames else (StackPlace.UNKNOWN, "")


def _c10d_place(frames: list[StackFrame]) -> StackPlace:
    functions = {f.function for f in frames if f.file.endswith(_C10D)}
    if functions & _TEARDOWN:
        return StackPlace.TEARDOWN
    if functions & _CREATION:
        return StackPlace.GROUP_CREATION
    if functions & _RENDEZVOUS:
        return StackPlace.RENDEZVOUS
    return StackPlace.COMMUNICATION


def main_thread(sample: StackSample) -> ThreadStack | None:
    for thread in sample.threads:
        if thread.main or thread.os_thread_id == sample.pid:
            return thread
    return sample.threads[0] if sample.threads else None


def calling_thread(sample: StackSample, code: CodeMap, file: str, line: int) -> ThreadStack | None:
    """The thread that makes a call of the user's ``line``, or else the one that communicates.

    The main thread wherever it could be meant, and where nothing tells.
    """
    main = main_thread(sample)
    threads = [] if main is None else [main, *(t for t in sample.threads if t is not main)]
    for thread in threads:
        if any(f.line == line and f.file == file for f in thread.frames):
            return thread
    inside = [t for t in threads if position_of(t, code).place in _CALLING]
    if main in inside or len(inside) != 1:
        return main
    return inside[0]


def position_of(thread: ThreadStack | None, code: CodeMap) -> StackPosition:
    """Position of ``thread``; ``unknown`` without frames."""
    if thread is None or not thread.frames:
        return StackPosition(StackPlace.UNKNOWN, None)
    frames = [f for f in thread.frames if code.owner(f.file) is not Owner.RECORDER]
    place, inside = _place(frames, code)
    users = tuple(code.user_frames(frames))
    return StackPosition(
        place=place,
        user=users[0] if users else None,
        users=users,
        inside=inside,
        active=thread.active,
        owns_gil=thread.owns_gil,
        innermost_is_user=bool(frames) and code.owner(frames[0].file) is Owner.USER,
    )
