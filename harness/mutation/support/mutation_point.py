"""Says when the fault of a mutant strikes, and changes what it loops over.

A mutant imports it from its own folder; it needs nothing of hanglab, and torch only where a
function says so.  With HANGLAB_FAULT=0 nothing strikes.  Where HANGLAB_MUTATION_TRUTH names a
folder, it keeps there what happened, for whoever judges verdicts: that the fault struck, where the
rank stood afterwards, and what it raised by itself.
"""

# hanglab: no branches
from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

#: The script that the mutants were made of; its folder has what it imports and reads.
ORIGINAL = ""
if not os.path.isfile(ORIGINAL):
    ORIGINAL = os.path.abspath(sys.argv[0])
if os.path.dirname(ORIGINAL) not in sys.path:
    sys.path.insert(1, os.path.dirname(ORIGINAL))

_executions: dict[tuple[str, int], int] = {}
_kept: list[object] = []


def strikes(rank: int, execution: int, every: int = 0, follow: bool = True) -> bool:
    """True on ``rank`` at this execution of the calling line, counted from 1.

    With ``every``, also at each so many-th that follows.  ``follow=False`` is for faults that cost
    time: to keep the line that the rank is at would cost more of it.
    """
    return own_rank() == rank and _is_due(sys._getframe(1), execution, every, follow)


def strikes_all_but(rank: int, execution: int) -> bool:
    """True on every rank but this one at this execution of the calling line, counted from 1."""
    if own_rank() != rank:
        return _is_due(sys._getframe(1), execution, 0, follow=True)
    # Who alone goes on as before is the odd one then, so its line is kept too.
    frame = sys._getframe(1)
    place = (frame.f_code.co_filename, frame.f_lineno)
    done = _executions[place] = _executions.get(place, 0) + 1
    path = _truth_path()
    if done == execution and path is not None and os.environ.get("HANGLAB_FAULT") != "0":
        _begin_to_follow(path)
    return False


def _is_due(frame: FrameType, execution: int, every: int, follow: bool) -> bool:
    if os.environ.get("HANGLAB_FAULT") == "0":
        return False
    place = (frame.f_code.co_filename, frame.f_lineno)
    done = _executions[place] = _executions.get(place, 0) + 1
    later = done - execution
    due = later == 0 or (every > 0 and later > 0 and later % every == 0)
    if due and (follow or later == 0):
        _record(*place, follow=follow)
    return due


def own_rank() -> int:
    return int(os.environ.get("RANK", "-1"))


def _record(file: str, line: int, follow: bool = True, **more: object) -> None:
    path = _truth_path()
    if path is None:
        return
    event = {"rank": own_rank(), "pid": os.getpid(), "file": file, "line": line, **more}
    with open(f"{path}.jsonl", "a") as events:
        events.write(json.dumps(event) + "\n")
    if follow:
        _begin_to_follow(path)


def _truth_path() -> str | None:
    """Begin of the paths of this rank's truth, without what follows the last dot."""
    folder = os.environ.get("HANGLAB_MUTATION_TRUTH")
    stem = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    return os.path.join(folder, f"{stem}.{own_rank()}") if folder else None


def _begin_to_follow(path: str) -> None:
    if not _kept and threading.current_thread() is threading.main_thread():
        _follow(f"{path}.line")


def _follow(path: str) -> None:
    """Keeps the script's line that the rank is at in mapped memory, whatever ends it.

    And behind it the line that made its groups' first operation from here on: where hosts only
    enqueue, a rank goes on from there, and stands elsewhere.
    Neither a thread nor a system call: what watches the rank must see nothing of it.
    """
    script = os.path.abspath(sys.argv[0])
    with open(path, "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    _kept.append(memory)

    before = _operations()

    def keep(line: int) -> None:
        nonlocal before
        if before is not None and _operations() != before:
            memory[4:8], before = memory[:4], None
        memory[:4] = line.to_bytes(4, "little")

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != script:
            return None
        outer: FrameType | None = frame
        # Not by a hook of its own, whose frame would be the innermost while others wait in theirs.
        if event == "exception" and frame.f_code.co_name == "<module>":
            _record_raised(*argument)
        if event == "return":
            outer = frame.f_back
            while outer is not None and outer.f_code.co_filename != script:
                outer = outer.f_back
        if outer is not None:
            keep(outer.f_lineno)
        return trace

    frame: FrameType | None = sys._getframe(1)
    found = False
    while frame is not None:
        if frame.f_code.co_filename == script:
            frame.f_trace = trace
            if not found:
                keep(frame.f_lineno)
            found = True
        frame = frame.f_back
    sys.settrace(trace)


def _operations() -> int | None:
    """Collectives of all groups so far, by their own counts; None where there are no groups."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return None
    total = 0
    for group in list(c10d._world.pg_map):
        try:
            total += group._get_sequence_number_for_group()
        except RuntimeError:
            continue  # a backend that counts none
    return total


def _record_raised(kind: type[BaseException], error: object, trace: TracebackType) -> None:
    """Keeps an exception that has come to the script's outermost frame."""
    script = os.path.abspath(sys.argv[0])
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(trace) if frame.filename == script]
    _record(script, lines[-1] if lines else 0, raised=kind.__name__, text=str(error)[:300])


# Iterables


def shortened(items: Iterable[Any], rank: int, execution: int) -> Iterable[Any]:
    """``items``, the last one left out where the fault strikes."""
    return _changed(items, rank, execution, _without_last)


def stopping(items: Iterable[Any], rank: int, execution: int, after: int) -> Iterable[Any]:
    """``items``, no more than ``after`` of them where the fault strikes."""

    def first(items: Iterable[Any], struck: Callable[[], None]) -> Iterator[Any]:
        for number, item in enumerate(items):
            if number == after:
                struck()
                return
            yield item

    return _changed(items, rank, execution, first)


def passing_over(items: Iterable[Any], rank: int, execution: int, number: int) -> Iterable[Any]:
    """``items`` without the one of that number, counted from 0, where the fault strikes."""

    def others(items: Iterable[Any], struck: Callable[[], None]) -> Iterator[Any]:
        for at, item in enumerate(items):
            if at == number:
                struck()
            else:
                yield item

    return _changed(items, rank, execution, others)


def _changed(
    items: Iterable[Any],
    rank: int,
    execution: int,
    change: Callable[[Iterable[Any], Callable[[], None]], Iterator[Any]],
) -> Iterable[Any]:
    if own_rank() != rank or os.environ.get("HANGLAB_FAULT") == "0":
        return items
    frame = sys._getframe(2)
    place = (frame.f_code.co_filename, frame.f_lineno)
    done = _executions[place] = _executions.get(place, 0) + 1
    return change(items, lambda: _record(*place)) if done == execution else items


def _without_last(items: Iterable[Any], struck: Callable[[], None]) -> Iterator[Any]:
    iterator = iter(items)
    kept: list[Any] = []
    for item in iterator:
        yield from kept
        kept = [item]
    if kept:
        struck()


# Data sets


class StuckDataset:
    """A data set that stops to deliver at one of its samples, in whichever process reads it."""

    def __init__(self, samples: Any, reads: int, place: tuple[str, int], end: str) -> None:
        self.samples = samples
        self.reads = reads
        self.place = place
        self.end = end

    def __len__(self) -> int:
        return len(self.samples)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "samples":
            raise AttributeError(name)
        return getattr(self.samples, name)

    def __getitem__(self, index: Any) -> Any:
        self.reads -= 1
        if self.reads == 0:
            _record(*self.place)
            if self.end == "dies":
                os.kill(os.getpid(), 9)
            reading, writing = os.pipe()
            _kept.append(writing)
            os.read(reading, 1)
        return self.samples[index]


def stuck_dataset(samples: Any, rank: int, reads: int, end: str = "waits") -> Any:
    """The data set, which on that rank waits for ever at so many-th read of it, or dies of it."""
    if own_rank() != rank or os.environ.get("HANGLAB_FAULT") == "0":
        return samples
    frame = sys._getframe(1)
    return StuckDataset(samples, reads, (frame.f_code.co_filename, frame.f_lineno), end)


def half_dataset(samples: Any, rank: int) -> Any:
    """The first half of the data set on that rank, as where its file is shorter.  Needs torch."""
    if own_rank() != rank or os.environ.get("HANGLAB_FAULT") == "0":
        return samples
    import torch.utils.data

    frame = sys._getframe(1)
    half = torch.utils.data.Subset(samples, range(len(samples) // 2))
    _record(frame.f_code.co_filename, frame.f_lineno)
    return half
