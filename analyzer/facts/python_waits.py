"""A rank whose Python code waits for what nobody in it, or below it, can ever bring.

A wait is a deadlock only if it has no timeout and no other thread or child
process of the rank is at work that could end it: a thread in a system call may
come back any time.  What the rank said of its own waits decides; where it could
not answer, the stack and the kernel say less.
"""

from __future__ import annotations

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.stack_position import StackPlace, main_thread, position_of
from hanglab.analyzer.facts.wait_channels import Channel, channel_of
from hanglab.analyzer.strengths import INFERRED, PLAUSIBLE, SEEN
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case.records import StackFrame, StackSample, ThreadStack, ThreadWait

#: Waits that only another thread of the same process can end.
_INNER = frozenset({"condition", "queue", "future", "pool", "thread", "lock"})
_WORDS = {
    "condition": "waits on a condition that nobody signals",
    "queue": "waits on a queue that nobody serves",
    "future": "waits for a future that nobody completes",
    "pool": "waits for a pool of processes in which nobody works for it",
    "thread": "waits for another thread to end",
    "lock": "waits for a lock that nobody lets go",
    "loop": "runs an event loop that has neither timers nor sockets: a task awaits what nobody "
    "will set",
}
#: The same of a thread that the main one may wait for.
_OF_ANOTHER = {
    **{kind: words.partition(" that ")[0] for kind, words in _WORDS.items()},
    "pool": "waits for a pool of processes",
    "process": "waits for a process to end",
    "selector": "waits for files or sockets",
    "loop": "runs an event loop",
}
#: Places of a stack that stand for the same where the rank did not answer.
_PLACES = (StackPlace.QUEUE, StackPlace.CONDITION, StackPlace.JOIN)
_MULTIPROCESSING = "/multiprocessing/"


def in_lock(wchan: str) -> bool:
    """True if a thread sleeps for a lock of its process, or of memory that it shares."""
    return channel_of(wchan) is Channel.LOCK


def python_wait(view: RankView) -> tuple[float, str] | None:
    """Confidence and words if the rank's main thread waits for ever; None otherwise."""
    position = view.position
    mine = next((wait for wait in view.waits if wait.main), None)
    if mine is not None:
        if not _for_ever(mine) or (mine.kind == "lock" and not position.innermost_is_user):
            return None
        if _somebody_works(view):
            # Whoever holds the lock is at work; a lock is a lock all the same.
            return (PLAUSIBLE, _describe(view, mine)) if mine.kind == "lock" else None
        return SEEN, _describe(view, mine)
    # Of a rank without the recorder it may be any native call, such as the wait for an operation.
    called = view.progress is not None and position.innermost_is_user
    if called and in_lock(view.wchan) and not position.active:
        return INFERRED, f"its main thread waits for a lock (kernel: {view.wchan})"
    if position.place in (StackPlace.JOIN, StackPlace.QUEUE) and not _somebody_works(view):
        kind = "thread" if position.place is StackPlace.JOIN else "queue"
        return PLAUSIBLE, f"its main thread {_WORDS[kind]}"
    return None


def _for_ever(wait: ThreadWait) -> bool:
    return wait.forever and (wait.kind in _INNER or (wait.kind == "loop" and wait.watches == 0))


def _describe(view: RankView, wait: ThreadWait) -> str:
    before = []
    dead = [child for child in view.children if child.signal is not None or child.code]
    if wait.kind in ("pool", "future", "queue") and dead:
        end = dead[-1]
        how = f"signal {end.signal}" if end.signal is not None else f"code {end.code}"
        before.append(f"its process {end.name or end.pid} ended with {how}; ")
    others = [other for other in view.waits if not other.main and other.os_thread_id is not None]
    if len(others) == 1:
        words = _OF_ANOTHER.get(others[0].kind, "waits")
        before.append(f"another thread{_line_of(view, others[0])} {words}; ")
    elif others:
        before.append(f"{len(others)} other threads wait; ")
    whose = f" ({wait.thread_name})" if wait.thread_name else ""
    # Last, as the line of the main thread stands behind it.
    return f"{''.join(before)}its main thread {_WORDS[wait.kind]}{whose}"


def _line_of(view: RankView, wait: ThreadWait) -> str:
    """``, at train.py:24 (ship),`` for the user's line of a thread; "" if none is known."""
    for thread in _other_threads(view):
        if thread.os_thread_id == wait.os_thread_id:
            place = name_line(view.location(view.code.innermost_user(thread.frames)))
            return f",{place}," if place else ""
    return ""


def _somebody_works(view: RankView) -> bool:
    """True if a thread or a child of the rank could still bring what the main thread waits for."""
    return any(_works(view, thread) for thread in _other_threads(view)) or any(
        _child_works(view, sample) for sample in view.worker_stacks()
    )


def nobody_works(view: RankView) -> bool:
    """True if the rank has no thread and no child that does anything, be it a library's own.

    Stricter than what a long rest asks for: a thread that writes a file may be a library's.
    """
    others = [thread for thread in _other_threads(view) if thread.frames]
    return all(_waits(view, thread) for thread in others) and not any(
        _child_works(view, sample) for sample in view.worker_stacks()
    )


def _other_threads(view: RankView) -> list[ThreadStack]:
    sample = view.captured_stack
    if sample is None:
        return []
    main = main_thread(sample)
    return [thread for thread in sample.threads if thread is not main]


def _works(view: RankView, thread: ThreadStack) -> bool:
    """A thread that runs the user's code and is not known to wait for another thread."""
    if not any(view.code.owner(frame.file) is Owner.USER for frame in thread.frames):
        return False
    return not _waits(view, thread)


def _waits(view: RankView, thread: ThreadStack) -> bool:
    for wait in view.waits:
        if wait.os_thread_id == thread.os_thread_id:
            return _for_ever(wait)
    return position_of(thread, view.code).place in _PLACES


def _child_works(view: RankView, sample: StackSample) -> bool:
    """A child that does more than wait for the next task of its pool."""
    if child_in_lock(sample, view):
        return False
    for thread in sample.threads:
        frames = [f for f in thread.frames if view.code.owner(f.file) is not Owner.RECORDER]
        if frames and not _idles_in_pool(frames, view):
            return True
    return False


def _idles_in_pool(frames: list[StackFrame], view: RankView) -> bool:
    """True if the innermost frames are multiprocessing's own, down to the worker's loop."""
    for frame in frames:
        if frame.function in ("worker", "_process_worker") and _is_stdlib(frame, view):
            return True
        if view.code.owner(frame.file) is Owner.USER:
            return False
    return False


def _is_stdlib(frame: StackFrame, view: RankView) -> bool:
    return view.code.owner(frame.file) is Owner.STDLIB


def child_in_lock(sample: StackSample, view: RankView) -> bool:
    """True if a forked child with one thread waits for a lock inside its own process."""
    thread = main_thread(sample)
    if thread is None or thread.active or len(sample.threads) != 1 or not thread.frames:
        return False
    frames = [f for f in thread.frames if view.code.owner(f.file) is not Owner.RECORDER]
    if not frames or view.code.owner(frames[0].file) not in (Owner.USER, Owner.STDLIB):
        return False
    if position_of(thread, view.code).place is StackPlace.CONDITION:
        return False  # It made that lock when it began to wait: nobody held it at the fork.
    # Locks of multiprocessing are shared with others that may let them go.
    if any(_MULTIPROCESSING in frame.file for frame in _above_user(frames, view)):
        return False
    if any(frame.function == "spawn_main" for frame in frames):
        return False
    return any(in_lock(s.wchan) for s in view.processes if s.pid == sample.pid)


def _above_user(frames: list[StackFrame], view: RankView) -> list[StackFrame]:
    """The innermost frames, up to the user's."""
    for place, frame in enumerate(frames):
        if view.code.owner(frame.file) is Owner.USER:
            return frames[:place]
    return frames


def fork_deadlock(view: RankView) -> str:
    """Words if the rank waits for a forked child that waits for a lock nobody in it can hold."""
    for sample in view.worker_stacks():
        if child_in_lock(sample, view):
            return (
                f"its child process {sample.pid} waits for a lock, and has no other thread "
                "that could hold it"
            )
    return ""
