"""Places are told from the stacks of real threads that really wait there."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

import pytest

from hanglab.analyzer.code_owners import CodeMap
from hanglab.analyzer.facts.stack_position import StackPlace, position_of
from hanglab.recorder.case.records import StackFrame, ThreadStack


@contextmanager
def waiting(body: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    yield thread


def stack_of(thread: threading.Thread, until: CodeType) -> ThreadStack:
    """The thread's stack, once ``until`` is its innermost function."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        frame = sys._current_frames().get(thread.ident or 0)
        innermost = frame.f_code if frame is not None else None
        frames = []
        while frame is not None:
            code = frame.f_code
            frames.append(StackFrame(code.co_name, code.co_filename, frame.f_lineno))
            frame = frame.f_back
        # Names do not tell: what calls the library's ``wait`` is called so as well.
        if innermost is until:
            return ThreadStack(frames=frames)
    raise AssertionError(f"the thread never came into {until.co_name}")


def test_queue_condition_join_and_a_bare_lock_are_told_apart() -> None:
    box: queue.Queue[int] = queue.Queue()
    event = threading.Event()
    lock = threading.Lock()
    lock.acquire()

    def take() -> None:
        box.get()

    def wait() -> None:
        event.wait()

    def hold() -> None:
        lock.acquire()
        lock.release()

    library = threading.Condition.wait.__code__
    with waiting(take) as a, waiting(wait) as b, waiting(hold) as c:
        try:
            code = CodeMap()
            assert position_of(stack_of(a, library), code).place is StackPlace.QUEUE
            at_event = position_of(stack_of(b, library), code)
            assert at_event.place is StackPlace.CONDITION
            assert at_event.user is not None and at_event.user.function == "wait"
            at_lock = position_of(stack_of(c, hold.__code__), code)
            assert at_lock.place is StackPlace.USER
            assert at_lock.innermost_is_user
        finally:
            box.put(1)
            event.set()
            lock.release()
            for thread in (a, b, c):
                thread.join(280)


C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/x/site-packages/torch/utils/data/dataloader.py"
USER = StackFrame("main", "/home/me/train.py", 7)


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([StackFrame("all_reduce", C10D, 1), USER], StackPlace.COMMUNICATION),
        (
            [StackFrame("_store_based_barrier", C10D, 1), StackFrame("new_group", C10D, 2), USER],
            StackPlace.GROUP_CREATION,
        ),
        (
            [
                StackFrame("_store_based_barrier", C10D, 1),
                StackFrame("init_process_group", C10D, 2),
                USER,
            ],
            StackPlace.RENDEZVOUS,
        ),
        ([StackFrame("destroy_process_group", C10D, 2), USER], StackPlace.TEARDOWN),
        (
            [
                StackFrame("select", "/usr/lib/python3.11/selectors.py", 1),
                StackFrame("_try_get_data", LOADER, 1),
                USER,
            ],
            StackPlace.LOADER,
        ),
        # a dataset that runs in the rank itself: the loader is around it
        (
            [
                StackFrame("__getitem__", "/home/me/data.py", 3),
                StackFrame("__next__", LOADER, 1),
                USER,
            ],
            StackPlace.LOADER,
        ),
        (
            [
                StackFrame("_wait_for_tstate_lock", "/usr/lib/python3.11/threading.py", 1),
                StackFrame("_shutdown", "/usr/lib/python3.11/threading.py", 2),
            ],
            StackPlace.TEARDOWN,
        ),
        ([USER], StackPlace.USER),
        ([], StackPlace.UNKNOWN),
    ],
)
def test_frames_of_torch_tell_the_place(frames: list[StackFrame], place: StackPlace) -> None:
    assert position_of(ThreadStack(frames=frames), CodeMap()).place is place


def test_a_loader_that_pins_memory_waits_for_a_queue_of_its_own() -> None:
    """torch's ``_try_get_data`` has its batches from a ``queue.Queue`` then."""
    code = CodeMap()
    loader = "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
    frames = [
        StackFrame("wait", "/usr/lib/python3.11/threading.py", 324),
        StackFrame("get", "/usr/lib/python3.11/queue.py", 180),
        StackFrame("_try_get_data", loader, 1131),
        StackFrame("train", "/w/train.py", 40),
    ]
    thread = ThreadStack(frames, "MainThread", main=True)
    assert position_of(thread, code).place is StackPlace.LOADER
    own = ThreadStack([*frames[:2], frames[3]], "MainThread", main=True)
    assert position_of(own, code).place is StackPlace.QUEUE
