"""What threads wait for, exceptions that were handled, and the elastic launcher's error file."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import multiprocessing
import os
import pickle
import queue
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.synchronize import Lock as SyncLock
from pathlib import Path

import pytest
from conditions import wait_for

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import user_code
from hanglab.recorder.rank import handled_exceptions
from hanglab.recorder.rank.handled_exceptions import HandledWatch, pending_exceptions
from hanglab.recorder.rank.thread_waits import thread_waits

STDLIB = tuple(user_code.stdlib_folders())


def locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def serving() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    await server.serve_forever()


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (lambda: locked().acquire(), ("lock", True, None)),
        (lambda: locked().acquire(timeout=600), ("lock", False, None)),
        (lambda: queue.SimpleQueue().get(), ("lock", True, None)),
        (lambda: queue.Queue().get(), ("queue", True, None)),
        (lambda: threading.Event().wait(), ("condition", True, None)),
        (lambda: threading.Event().wait(600), ("condition", False, None)),
        (lambda: concurrent.futures.Future().result(), ("future", True, None)),
        (lambda: asyncio.run(never()), ("loop", True, 0)),
        (lambda: asyncio.run(asyncio.sleep(600)), ("loop", False, 0)),
        (lambda: asyncio.run(serving()), ("loop", True, 1)),
    ],
)
def test_waits_are_told_apart(
    wait: Callable[[], object], expected: tuple[str, bool, int | None]
) -> None:
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()

    def told() -> list[tuple[str, bool, int | None]]:
        return [
            (one["kind"], one["forever"], one.get("watches"))
            for one in thread_waits(STDLIB)
            if one["os_thread_id"] == thread.native_id
        ]

    # On its way into the wait the thread is seen elsewhere.
    wait_for(lambda: told() == [expected], f"{expected}, not {told()}")


def let_go(lock: SyncLock, waiting: list[threading.Thread]) -> None:
    """Release a lock once for each thread that waits for it: again when one has it, and ended."""
    for count in range(1, len(waiting) + 1):
        lock.release()
        wait_for(
            lambda wanted=count: sum(not one.is_alive() for one in waiting) == wanted,
            "a thread that has the lock",
        )


def test_locks_of_several_processes_are_told_by_the_memory_that_they_lie_in() -> None:
    """One of this process alone has none; two of several have two."""
    first, other = (multiprocessing.get_context("spawn").Lock() for _ in range(2))
    locks = [first, first, other, locked()]
    for lock in (first, other):
        lock.acquire()
    threads = [threading.Thread(target=lock.acquire, daemon=True) for lock in locks]
    for thread in threads:
        thread.start()

    def told() -> list[str | None]:
        found = {one["os_thread_id"]: one for one in thread_waits(STDLIB)}
        return [found.get(thread.native_id, {}).get("shared") for thread in threads]

    seen: list[list[str | None]] = []

    def all_wait() -> bool:
        seen.append(told())
        return None not in seen[-1]

    try:
        wait_for(all_wait, "a lock for each thread")
        one, same, second, own = seen[-1]
        assert one and one == same and second and second != one and own == ""
    finally:
        for lock, waiting in ((first, threads[:2]), (other, threads[2:3])):
            let_go(lock, waiting)


def test_a_lock_that_a_thread_passes_over_and_over_is_no_wait() -> None:
    """As the interpreter's own is, whoever holds it at the moment of the look."""
    lock, done = threading.Lock(), threading.Event()

    def pass_by() -> None:
        while not done.is_set():
            with lock:
                pass

    def hold() -> None:
        while not done.is_set():
            with lock:
                time.sleep(0.002)

    threads = [threading.Thread(target=one) for one in (pass_by, hold)]
    for thread in threads:
        thread.start()
    try:
        seen = [one for _ in range(5) for one in thread_waits(STDLIB)]
        assert threads[0].native_id not in {one["os_thread_id"] for one in seen}
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_join_says_for_whom() -> None:
    release = threading.Event()
    target = threading.Thread(target=release.wait, name="writer")
    target.start()
    joiner = threading.Thread(target=target.join)
    joiner.start()
    try:
        found = wait_for(
            lambda: [
                one
                for one in thread_waits(STDLIB)
                if one["os_thread_id"] == joiner.native_id and one["kind"] == "thread"
            ],
            "the thread to join",
        )
        assert (found[0]["thread"], found[0]["thread_name"]) == (target.native_id, "writer")
    finally:
        release.set()
        target.join()
        joiner.join()


def test_an_exception_is_pending_as_long_as_its_handler_runs() -> None:
    release, handled, end = threading.Event(), threading.Event(), threading.Event()

    def handle() -> None:
        try:
            int("none")
        except ValueError:
            release.wait()
        handled.set()
        end.wait()

    def pending() -> list[tuple[str, str, bool]]:
        return [
            (one["type"], one["frames"][-1]["function"], one["main"])
            for one in pending_exceptions()
        ]

    thread = threading.Thread(target=handle)
    try:
        try:
            raise KeyError  # the thread that looks handles one itself
        except KeyError:
            thread.start()
            wait_for(lambda: pending() == [("ValueError", "handle", False)], "one that is handled")
        release.set()
        handled.wait()
        assert pending() == []
    finally:
        release.set()
        end.set()
        thread.join()


def test_printed_and_logged_exceptions_are_noted_once_each(caplog, capsys) -> None:  # type: ignore[no-untyped-def]
    noted: list[str] = []
    watch = HandledWatch(lambda value: noted.append(str(value)))
    before = traceback.print_exception, traceback.format_exception
    watch.install(traceback)
    try:
        for number in range(3):
            try:
                raise ValueError(f"number {number}")
            except ValueError:
                if number == 0:
                    traceback.print_exc()
                elif number == 1:
                    logging.getLogger("job").exception("trouble")
                else:
                    assert "number 2" in traceback.format_exc()
    finally:
        watch.uninstall()
    assert noted == ["number 0", "number 1", "number 2"]
    assert (traceback.print_exception, traceback.format_exception) == before
    printed = capsys.readouterr().err
    # No line of the wrapper's own stands in it.
    assert "number 0" in printed and Path(handled_exceptions.__file__).name not in printed


def test_what_is_wrapped_can_be_pickled_and_described_as_before() -> None:
    names = ("print_exception", "format_exception")
    before = [str(inspect.signature(getattr(traceback, name))) for name in names]
    watch = HandledWatch(lambda value: None)
    watch.install(traceback)
    try:
        now = [getattr(traceback, name) for name in names]
        assert pickle.loads(pickle.dumps(now)) == now
        assert [str(inspect.signature(function)) for function in now] == before
    finally:
        watch.uninstall()


def test_a_note_that_fails_never_reaches_the_job(capsys) -> None:  # type: ignore[no-untyped-def]
    def fail(value: BaseException) -> None:
        raise OSError("disk full")

    watch = HandledWatch(fail)
    watch.install(traceback)
    try:
        try:
            raise KeyError("x")
        except KeyError:
            traceback.print_exc()
    finally:
        watch.uninstall()
    assert "KeyError: 'x'" in capsys.readouterr().err


def test_the_elastic_launcher_s_error_file_is_kept(start_job, tmp_path) -> None:  # type: ignore[no-untyped-def]
    error = tmp_path / "error.json"
    error.write_text('{"message": {"message": "the reason"}}')
    job = start_job(
        "states_program.py", 2, {"ROLES": "sx", "TORCHELASTIC_ERROR_FILE": os.fspath(error)}
    )
    assert job.status(1) == 1 << 8
    assert "the reason" in job.rank(1).read(files.ELASTIC_ERROR)
    assert [raised.message for raised in job.rank(1).read(files.EXCEPTIONS)] == [
        "the reason of it all"
    ]
