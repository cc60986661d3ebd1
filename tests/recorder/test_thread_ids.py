"""A rank's header tells which threads bring it no further while it is in an operation."""

from __future__ import annotations

import queue
import threading

from conditions import wait_for

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.case.progress import read_counters
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.thread_ids import note_threads


def new_progress() -> ProgressFile:
    progress = ProgressFile(None)
    progress.identify(0, 0, 2)
    return progress


def look(progress: ProgressFile) -> tuple[int, ...] | None:
    """What another thread notes while the main one is in no function of the standard library."""
    found: list[tuple[int, ...] | None] = []
    started: list[bool] = []

    def note() -> None:
        while not started:
            pass
        note_threads(progress.slots)
        found.append(read_counters(progress.mapping).idle_threads)

    noting = threading.Thread(target=note)
    noting.start()
    started.append(True)
    while not found:
        pass
    noting.join()
    (one,) = found
    return one


def test_threads_are_told_while_an_operation_is_open() -> None:
    progress, stop = new_progress(), threading.Event()
    assert look(progress) is None
    progress.counters([(0, 5, 4)])
    helper = threading.Thread(target=stop.wait)
    helper.start()
    told = look(progress)
    stop.set()
    helper.join()
    assert told is not None
    assert helper.native_id in told
    assert threading.main_thread().native_id not in told
    progress.counters([(0, 5, 5)])
    assert look(progress) is None


def test_who_waits_for_another_thread_is_not_told_to_be_in_an_operation() -> None:
    progress, answers = new_progress(), queue.Queue[tuple[int, ...] | None]()
    progress.counters([(0, 5, 4)])

    def note() -> None:
        wait_for(lambda: len(answers.not_empty._waiters) > 0, "the queue to be waited for")
        note_threads(progress.slots)
        answers.put(read_counters(progress.mapping).idle_threads)

    threading.Thread(target=note).start()
    assert answers.get() is None


def test_more_threads_than_there_is_room_for_are_not_told() -> None:
    progress = new_progress()
    progress.counters([(0, 5, 4)])
    progress.slots[Slot.IN_OPERATION] = 1
    room = Slot.IN_OPERATION - Slot.FIRST_THREAD
    progress.slots[Slot.THREADS] = room
    told = read_counters(progress.mapping).idle_threads
    assert told is not None
    assert len(told) == room
    progress.slots[Slot.THREADS] = -1
    assert read_counters(progress.mapping).idle_threads is None


def test_slots_of_threads_are_no_others() -> None:
    taken = {*range(Slot.TABLES + 3 * len(layout.ALL_TABLES)), Slot.POLLING_SINCE}
    assert taken.isdisjoint(range(Slot.THREADS, Slot.IN_OPERATION + 1))
