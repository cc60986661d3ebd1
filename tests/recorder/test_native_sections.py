"""Sections and steps as the extension module writes them, beside the code in Python."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conditions import wait_for

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import Slot, Table
from hanglab.recorder.case.progress import Progress, read_progress
from hanglab.recorder.rank.native import WRITER
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import INPUT, UPDATE, SectionFactory, section_type

native_only = pytest.mark.skipif(
    WRITER is None,
    reason="there is no extension module: install a C compiler and Python's headers, then "
    "install hanglab again, without HANGLAB_PURE_PYTHON",
)

#: Fields of records that hold times, and slots that do.
TIMES = {layout.SECTIONS: (2, 3, 4), layout.TOTALS: (3, 4), layout.STEPS: (2,)}
TIME_SLOTS = (Slot.STEP_STARTED, Slot.SECTION_EVENT, Slot.HEARTBEAT_MONO, Slot.WALL_MINUS_MONO)


def without_times(progress: ProgressFile) -> list[int]:
    """The whole file, with 0 for any time; 1 for that of an open section, and its thread."""
    slots = progress.slots.tolist()
    places = [
        progress.at[table] // 8 + number * table.record // 8 + field
        for table, fields in TIMES.items()
        for number in range(table.capacity)
        for field in fields
    ]
    for place in (*places, *TIME_SLOTS):
        slots[place] = 0
    for number in range(layout.OPEN.capacity):
        started = progress.at[layout.OPEN] // 8 + 3 * number + 1
        slots[started] = min(1, slots[started])
        # Which thread it is differs from run to run.
        slots[started + 1] = min(1, slots[started + 1])
    return slots


def contents(progress: ProgressFile) -> Progress:
    progress.identify(0, 0, 1)
    return read_progress(progress.mapping[:])


class Name(str):
    __slots__ = ()


class Number:
    def __index__(self) -> int:
        return 70


def nest(progress: ProgressFile, section: SectionFactory) -> None:
    for _ in range(3):
        progress.step()
        with section("outer"), section("inner"), section("inner"), section("outer", kind=INPUT):
            pass
        with section(name="outer", kind=UPDATE):
            progress.step(number=9)
    section("never entered")
    section.write_totals()


def raise_in_sections(progress: ProgressFile, section: SectionFactory) -> None:
    for error in (KeyError("key"), KeyboardInterrupt(), StopIteration(), GeneratorExit()):
        with pytest.raises(type(error)) as raised, section("raising"), section("within"):
            raise error
        assert raised.value is error
    section.write_totals()


def give_odd_names(progress: ProgressFile, section: SectionFactory) -> None:
    names: list[Any] = ["é" * 5000, "", "\ud800", "a\0b", Name("own"), "own", 5, None, ("a", 1), []]
    for _ in range(2):
        for name in names:
            with section(name), section(name, UPDATE):
                pass
    section.write_totals()


def give_odd_steps(progress: ProgressFile, section: SectionFactory) -> None:
    numbers: list[Any] = [3, None, True, Number(), -1, 1 << 62, 1 << 63, -(1 << 70), "a", 2.5, []]
    for number in numbers:
        progress.step(number)
        progress.step()


def go_round_the_rings(progress: ProgressFile, section: SectionFactory) -> None:
    for number in range(2 * layout.SECTIONS.capacity + 3):
        progress.step()
        with section("odd" if number % 2 else "even"):
            pass
    section.write_totals()


def open_more_than_there_are_rows(progress: ProgressFile, section: SectionFactory) -> None:
    opened = [section(f"section {number % 70}") for number in range(layout.OPEN.capacity + 9)]
    for one in opened:
        one.__enter__()
    for one in opened[::2]:
        one.__exit__(None, None, None)
    for one in opened[::4]:
        one.__enter__()


def use_sections_wrongly(progress: ProgressFile, section: SectionFactory) -> None:
    one = section("again")
    one.__exit__(None, None, None)
    with one, one, one:
        pass
    one.__exit__(None, None, None)
    for _ in range(2 * layout.OPEN.capacity):
        with one, one:
            pass
    with section("first"), section("second"):
        section("dropped").__enter__()
    section.write_totals()


def run_out_of_totals(progress: ProgressFile, section: SectionFactory) -> None:
    for number in range(layout.TOTALS.capacity + 20):
        for _ in range(2):
            with section(f"number {number}", kind=number % 3):
                pass
    section.write_totals()


def run_out_of_texts(progress: ProgressFile, section: SectionFactory) -> None:
    for number in range(100):
        with section(f"{number:04}" * 1000), section("short"):
            pass
    with section("late"):
        section.write_totals()


def use_threads(progress: ProgressFile, section: SectionFactory) -> None:
    def work() -> None:
        with section("in a thread"):
            progress.step()
        section("left open").__enter__()

    with section("here"):
        for _ in range(3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    section.write_totals()


@native_only
@pytest.mark.parametrize(
    "calls",
    [
        nest,
        raise_in_sections,
        give_odd_names,
        give_odd_steps,
        go_round_the_rings,
        open_more_than_there_are_rows,
        use_sections_wrongly,
        run_out_of_totals,
        run_out_of_texts,
        use_threads,
    ],
)
def test_both_write_the_same_but_for_times(
    calls: Callable[[ProgressFile, SectionFactory], None],
) -> None:
    files = [ProgressFile(None, writer) for writer in (WRITER, None)]
    for file in files:
        assert (file.native is None) == (file is files[1])
        calls(file, section_type(file))
    native, python = (without_times(file) for file in files)
    assert native == python
    assert native != without_times(ProgressFile(None, None)), "something was written"


def test_where_nobody_reads_the_file_times_are_taken_and_nothing_is_noted(writer) -> None:
    progress = ProgressFile(None, writer)
    make = section_type(progress, written=False)
    section = make("forward")
    before = bytes(progress.mapping)
    with section:
        assert make.innermost(threading.get_ident()) == ""
        until = time.monotonic_ns() + 2_000_000
        while time.monotonic_ns() < until:
            pass
    # The clocks are read one after the other, which takes time of the processor.
    assert section.wall >= 2_000_000 and 0 < section.cpu <= section.wall + 100_000
    assert bytes(progress.mapping) == before


def test_times_are_those_of_the_section(writer) -> None:
    progress = ProgressFile(None, writer)
    section = section_type(progress)
    before, used = time.time_ns(), time.thread_time_ns()
    with section("busy"):
        inside = time.time_ns()
        busy = time.thread_time_ns()
        while time.thread_time_ns() < busy + 20_000_000:
            pass
        busy = time.thread_time_ns() - busy
        until = time.time_ns()
    after, used = time.time_ns(), time.thread_time_ns() - used
    with section("idle"):
        time.sleep(0.03)
    section.write_totals()
    found = contents(progress)
    events = {event.section: event for event in found.section_events}
    totals = {total.section: total for total in found.section_totals}
    assert before <= events["busy"].started_ns <= inside
    assert until - inside <= events["busy"].wall_ns <= after - before
    # A reading of the CPU clock may be carried forward for 20 us.
    assert busy - 50_000 <= events["busy"].cpu_ns <= used + 50_000
    assert events["idle"].wall_ns >= 30_000_000 > 10 * events["idle"].cpu_ns
    for name in ("busy", "idle"):
        assert totals[name].wall_ns == events[name].wall_ns
        assert totals[name].cpu_ns == events[name].cpu_ns


def test_who_enters_a_section_has_its_times(writer) -> None:
    progress = ProgressFile(None, writer)
    section = section_type(progress)
    one = section("one")
    assert (one.wall, one.cpu) == (0, 0)
    for _ in range(2):
        before = time.monotonic_ns()
        with one:
            time.sleep(0.002)
        assert before <= one.began <= time.monotonic_ns() - one.wall
        assert one.wall >= 2_000_000
        event = contents(progress).section_events[-1]
        assert (event.wall_ns, event.cpu_ns) == (one.wall, one.cpu)
        # Whatever comes between two readings of clocks is less than from before to after.
        after, wall = time.monotonic_ns(), time.time_ns()
        assert abs(event.started_ns - one.began - wall + after) < time.monotonic_ns() - before
    section.leave()
    late = section("late")
    with late:
        pass
    assert (late.began, late.wall, late.cpu) == (0, 0, 0), "no rank any more: nothing is taken"


def test_times_alone_are_taken_where_nobody_reads_the_file() -> None:
    progress = ProgressFile(None, None)
    section = section_type(progress, written=False)
    one = section("busy")
    with one:
        busy = time.thread_time_ns()
        while time.thread_time_ns() < busy + 5_000_000:
            pass
    assert one.wall + 50_000 >= one.cpu >= 5_000_000 - 50_000
    section("left open").__enter__()
    found = contents(progress)
    assert (found.section_events, found.open_sections) == ([], [])


def test_a_wall_clock_that_jumps_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    real, jump = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump[0])
    progress = ProgressFile(None, None)
    section = section_type(progress)
    for step in range(10):
        with section("step"):
            jump[0] = (-1) ** step * 3_600_000_000_000
            time.sleep(0.001)
    section.write_totals()
    found = contents(progress)
    (total,) = found.section_totals
    assert 10_000_000 <= total.wall_ns < 3_000_000_000_000
    assert all(1_000_000 <= event.wall_ns < 3_000_000_000_000 for event in found.section_events)
    apart = [event.started_ns for event in found.section_events]
    assert max(apart) - min(apart) > 7_000_000_000_000, "they began when the wall clock said so"


def test_threads_and_signal_handlers_come_between(writer) -> None:
    progress = ProgressFile(None, writer)
    section = section_type(progress)
    done = threading.Event()
    handled = 0

    def work(number: int) -> None:
        while not done.is_set():
            with section(f"thread {number}"), section("shared"):
                progress.step()

    def handle(*_: object) -> None:
        nonlocal handled
        handled += 1
        with section(f"handler {handled % 50}"), section("shared"):
            progress.step()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for thread in threads:
            thread.start()
        while handled < 100:
            with section("main"), section("shared"):
                section.write_totals()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        done.set()
        for thread in threads:
            thread.join()
    section.write_totals()
    found = contents(progress)
    entered = sum(total.count for total in found.section_totals)
    shared = next(total for total in found.section_totals if total.section == "shared")
    if writer is not None:
        # In Python somebody may come between the reading of a total and its writing.
        assert 2 * shared.count == entered
    assert len(found.section_events) == min(entered, layout.SECTIONS.capacity)
    assert found.open_sections == []
    opened = [section(str(number)) for number in range(layout.OPEN.capacity)]
    for one in opened:
        one.__enter__()
    assert len(contents(progress).open_sections) == layout.OPEN.capacity, "no row was lost"


def test_a_thousand_sections_leave_nothing_behind(writer) -> None:
    progress = ProgressFile(None, writer)
    section = section_type(progress)
    names = ["constant", *(f"made {number}" for number in range(5))]
    error = ValueError()

    def work(count: int) -> None:
        for number in range(count):
            with contextlib.suppress(ValueError), section(names[number % 6]):
                progress.step(number)
                raise error
            with section("constant", INPUT):
                section.innermost(threading.get_ident())
            section.write_totals()
            error.__traceback__ = None

    # Once round the rings: whoever counts their places keeps them.
    work(layout.SECTIONS.capacity)
    gc.collect()
    counts = [sys.getrefcount(one) for one in (*names, section, progress, type(section("x")))]
    objects = len(gc.get_objects())
    tracemalloc.start()
    try:
        work(100)
        before = tracemalloc.get_traced_memory()[0]
        work(5_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert [
        sys.getrefcount(one) for one in (*names, section, progress, type(section("x")))
    ] == counts
    assert grown < 20_000, "the smallest object has 16 bytes: one for each turn were 80,000"
    assert abs(len(gc.get_objects()) - objects) < 50


def test_file_and_recorder_go_when_nobody_has_them(writer, tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path / "progress.bin", writer)
    gone = weakref.ref(progress)
    section = section_type(progress)
    with section("one"):
        pass
    del progress, section
    gc.collect()
    assert gone() is None
    assert "progress.bin" not in Path("/proc/self/maps").read_text()


def test_a_section_outlives_its_recorder(writer, tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path / "progress.bin", writer)
    progress.identify(0, 0, 1)
    step, section = progress.step, section_type(progress)
    del progress
    gc.collect()
    entered = section("open")
    entered.__enter__()
    step()
    del section, step
    gc.collect()
    entered.__exit__(None, None, None)
    found = read_progress((tmp_path / "progress.bin").read_bytes())
    assert [event.section for event in found.section_events] == ["open"]
    assert found.steps and found.open_sections == []


@native_only
def test_the_mapping_cannot_be_closed_below_it() -> None:
    progress = ProgressFile(None)
    section = section_type(progress)
    with section("still there"):
        progress.slots.release()
        with pytest.raises(BufferError):
            progress.mapping.close()
    with section("still there"):
        progress.step()


def arguments(mapping: Any = None, **others: Any) -> dict[str, Any]:
    progress = ProgressFile(None, None)

    def place(table: Table) -> tuple[int, int, int]:
        return progress.at[table], table.capacity, table.record

    return {
        "buffer": progress.mapping if mapping is None else mapping,
        "sections": place(layout.SECTIONS),
        "totals": place(layout.TOTALS),
        "open": place(layout.OPEN),
        "steps": place(layout.STEPS),
        "slots": (Slot.STEP, Slot.SECTION_EVENT, Slot.TOTALS_USED),
        "text": progress.text,
        "read_text": progress.read_text,
        "full": progress.note_truncated,
        **others,
    }


SIZE = layout.offsets()[-1]


@native_only
@pytest.mark.parametrize(
    "wrong",
    [
        {"sections": (SIZE - 55, 1, 56)},
        {"sections": (4096, SIZE, 56)},
        {"sections": (4096, 1 << 61, 56)},
        {"sections": (4096, 4096, 48)},
        {"sections": (4097, 4096, 56)},
        {"sections": (-56, 1, 56)},
        {"sections": (1 << 62, 1, 56)},
        {"sections": (1 << 80, 1, 56)},
        {"sections": [4096, 4096, 56]},
        {"sections": (4096, 4096)},
        {"totals": (4096, 0, 40)},
        {"totals": (SIZE, 1, 40)},
        {"open": (4096, 1 << 20, 24)},
        {"open": (4096, -1, 24)},
        {"steps": ("a", 1, 32)},
        {"slots": (SIZE // 8 - 2, 16, 18)},
        {"slots": (11, -1, 18)},
        {"slots": (11, 16, SIZE // 8)},
        {"slots": (11, 16)},
        {"buffer": b"immutable" * 100_000},
        {"buffer": bytearray(100)},
        {"buffer": None},
    ],
)
def test_what_could_be_written_elsewhere_is_refused(wrong: dict[str, Any]) -> None:
    assert WRITER is not None
    WRITER(**arguments())
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
        WRITER(**{**arguments(), **wrong})


@native_only
def test_a_mapping_that_is_closed_is_refused() -> None:
    assert WRITER is not None
    mapping = mmap.mmap(-1, SIZE)
    mapping.close()
    with pytest.raises(ValueError):
        WRITER(**arguments(mapping))


@native_only
def test_what_is_odd_about_the_callbacks_reaches_nobody_else() -> None:
    assert WRITER is not None

    def interrupted(name: str) -> int:
        raise KeyboardInterrupt

    # A signal handler runs in them, too, and what it raises is the job's.
    with pytest.raises(KeyboardInterrupt):
        WRITER(**arguments(text=interrupted))("a")

    progress = ProgressFile(None, None)
    made: list[Any] = []

    def enter_again(name: str) -> int:
        if not made:
            made.append(None)
            made.append(section(name))
        return progress.text(name)

    section = WRITER(**arguments(progress.mapping, text=enter_again))
    with section("a"), made[1]:
        pass
    section.write_totals()
    assert [(t.section, t.count) for t in contents(progress).section_totals] == [("a", 2)]

    def leave(name: str) -> int:
        leaving.leave()
        return 8

    leaving = WRITER(**arguments(text=leave))
    with leaving("a"), leaving("b"):
        leaving.step()


def test_a_writer_of_another_state_of_the_project_is_not_used() -> None:
    class Other:
        def __init__(self, mapping: object) -> None: ...

    progress = ProgressFile(None, Other)  # type: ignore[arg-type]
    assert progress.native is None
    with section_type(progress)("a"):
        progress.step()
    assert len(contents(progress).section_events) == 1


def run(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    )
    return done.stdout


def test_the_environment_and_a_broken_module_choose_the_code_in_python() -> None:
    shown = "from hanglab.recorder.rank.native import WRITER; print(WRITER is None)"
    assert run(shown, HANGLAB_PURE_PYTHON="1") == "True\n"
    assert run(shown, HANGLAB_PURE_PYTHON="0") == f"{WRITER is None}\n"
    hide = "import sys; sys.modules['hanglab.recorder.rank.native.writer'] = None\n"
    assert run(hide + shown) == "True\n"


WRITING = """
import sys
from pathlib import Path
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import section_type
progress = ProgressFile(Path(sys.argv[1]))
progress.identify(0, 0, 1)
section = section_type(progress)
with section("all the time"):
    while True:
        progress.step()
        with section("forward"), section("layer"):
            pass
        section.write_totals()
"""


@pytest.mark.parametrize("pure", ["0", "1"])
def test_what_a_killed_process_leaves_can_be_read(tmp_path: Path, pure: str) -> None:
    path = tmp_path / "progress.bin"
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITING, str(path)],
            env={**os.environ, "HANGLAB_PURE_PYTHON": pure},
        )
        try:

            def full() -> bool:
                try:
                    events = read_progress(path.read_bytes()).section_events
                    return len(events) >= layout.SECTIONS.capacity - 1
                except (OSError, ValueError):
                    return False

            wait_for(full, "a ring that is full")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        found = read_progress(path.read_bytes())
        # The record that was being written may be lacking, and no other.
        assert len(found.section_events) >= layout.SECTIONS.capacity - 1
        assert len(found.steps) >= layout.STEPS.capacity - 1
        steps = [step for step, _ in found.steps]
        assert steps[-1] - steps[0] in (len(steps) - 1, len(steps))
        assert found.open_sections[0].section == "all the time"
        assert {event.section for event in found.section_events} == {"forward", "layer"}
        path.unlink()


FORKING = """
import json, os, sys
from pathlib import Path
import hanglab.recorder as module
from hanglab.recorder import rank, section as early
rank.start(sys.argv[1], rank=0, world_size=1)
from hanglab.recorder import section, step
assert section is module.section is not early, "nothing stands between"
progress = module._active._progress
with early("early"), section("known"):
    step()
def written():
    tables = [
        progress.mapping[progress.at[table] : progress.at[table] + table.capacity * table.record]
        for table in (SECTIONS, OPEN, STEPS)
    ]
    return tables, [progress.slots[place] for place in PLACES]
from hanglab.recorder.case.layout import OPEN, SECTIONS, STEPS, Slot
PLACES = Slot.STEP, Slot.STEPS_TOTAL, Slot.SECTION_EVENT, Slot.TOTALS_USED, Slot.TEXT_USED
entered = section("over the fork")
entered.__enter__()
waiting = section("entered after the fork")
before = written()
pid = os.fork()
if pid == 0:
    with section("known"), section("unknown"), section(name="named"), early("early"), waiting:
        step()
        step(number=4)
        with module.section("again"):
            module.step()
    entered.__exit__(None, None, None)
    os._exit(0 if module.section is early and written() == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
entered.__exit__(None, None, None)
step()
assert written() != before
print(json.dumps(json.loads(next(Path(sys.argv[1]).rglob("process.json")).read_text())["python"]))
"""


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_forked_child_writes_nothing_and_the_case_tells_which_code_ran(
    tmp_path: Path, pure: str
) -> None:
    printed = run(FORKING, str(tmp_path / "case"), HANGLAB_PURE_PYTHON=pure)
    assert f'"native": {str(pure == "0" and WRITER is not None).lower()}' in printed


INTERPRETERS = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import section_type
progress = ProgressFile(None)
section = section_type(progress)
for _ in range(100):
    with section("a"):
        progress.step()
section.write_totals()
from hanglab.recorder.rank.native import WRITER
assert (progress.native is None) == (WRITER is None)
'''
exec(code)
for _ in range(3):
    made = interpreters.create()
    problem = (getattr(interpreters, "exec", None) or interpreters.run_string)(made, code)
    assert problem is None, problem
    interpreters.destroy(made)
exec(code)
print("done")
"""


def test_interpreters_within_a_process() -> None:
    assert run(INTERPRETERS) == "done\n"
