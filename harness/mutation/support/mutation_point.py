"""Says when the fault of a mutant strikes, and makes what it strikes with.

A mutant imports it from its own folder; it needs nothing of hanglab, and torch only where a
function says so.  With HANGLAB_FAULT=0 nothing strikes.  Where HANGLAB_MUTATION_TRUTH names a
folder, it keeps there what happened, for whoever judges verdicts: that the fault struck, where the
rank stood afterwards, and what it raised by itself.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: The script that the mutants were made of; its folder has what it imports and reads.
ORIGINAL = ""
if not os.path.isfile(ORIGINAL):
    ORIGINAL = os.path.abspath(sys.argv[0])
if os.path.dirname(ORIGINAL) not in sys.path:
    sys.path.insert(1, os.path.dirname(ORIGINAL))

#: Called on the line of the fault, so that it is the innermost of the user's own.
now = time.perf_counter
sleep = time.sleep
read = os.read

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
    return own_rank() != rank and _is_due(sys._getframe(1), execution, 0, follow=True)


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
    folder = os.environ.get("HANGLAB_MUTATION_TRUTH")
    if not folder:
        return
    stem = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    path = os.path.join(folder, f"{stem}.{own_rank()}")
    event = {"rank": own_rank(), "pid": os.getpid(), "file": file, "line": line, **more}
    with open(f"{path}.jsonl", "a") as events:
        events.write(json.dumps(event) + "\n")
    if follow and not _kept and threading.current_thread() is threading.main_thread():
        _follow(f"{path}.line")
        _keep_what_is_raised()


def _follow(path: str) -> None:
    """Keeps the script's line that the rank is at in mapped memory, whatever ends it.

    Neither a thread nor a system call: what watches the rank must see nothing of it.
    """
    script = os.path.abspath(sys.argv[0])
    with open(path, "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    _kept.append(memory)

    def keep(line: int) -> None:
        memory[:4] = line.to_bytes(4, "little")

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != script:
            return None
        outer: FrameType | None = frame
        if event == "return":
            outer = frame.f_back
            while outer is not None and outer.f_code.co_filename != script:
                outer = outer.f_back
        if outer is not None:
            keep(outer.f_lineno)
        return trace

    frame: FrameType | None = sys._getframe(2)
    found = False
    while frame is not None:
        if frame.f_code.co_filename == script:
            frame.f_trace = trace
            if not found:
                keep(frame.f_lineno)
            found = True
        frame = frame.f_back
    sys.settrace(trace)


def _keep_what_is_raised() -> None:
    before = sys.excepthook

    def keep(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        frames = traceback.extract_tb(trace)
        script = os.path.abspath(sys.argv[0])
        lines = [frame.lineno or 0 for frame in frames if frame.filename == script]
        _record(script, lines[-1] if lines else 0, raised=kind.__name__, text=str(error)[:300])
        before(kind, error, trace)

    sys.excepthook = keep


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
    kept = [item for item, _ in zip(iterator, range(1), strict=False)]
    for item in iterator:
        yield kept.pop()
        kept.append(item)
    if kept:
        struck()


# Values


def another_rank(rank: int, group: Any = None) -> int:
    """A member of the group other than that one.  Needs torch."""
    import torch.distributed as dist

    members = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
    return members[(members.index(rank) + 1) % len(members)]


def another_peer(peer: int, group: Any = None) -> int:
    """A member of the group other than that one and the caller itself.  Needs torch."""
    other = another_rank(peer, group)
    return another_rank(other, group) if other == own_rank() else other


def another_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with elements of another size.  Needs torch."""
    import torch

    if tensor.is_floating_point():
        return tensor.to(torch.float32 if tensor.dtype is torch.float64 else torch.float64)
    return tensor.to(torch.int32 if tensor.dtype is torch.int64 else torch.int64)


def another_size(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, flat and with an element more.  Needs torch."""
    import torch

    flat = tensor.detach().flatten()
    return torch.cat([flat, flat[:1] if len(flat) else flat.new_zeros(1)])


def another_group(group: Any = None) -> Any:
    """Another process group of which the caller is a member too.  Needs torch."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    given = group if group is not None else dist.group.WORLD
    others = [one for one in distributed_c10d._world.pg_map if one is not given and one.size() > 1]
    # The largest: its members meet what the caller leaves out the soonest.
    return max(others, key=lambda one: one.size(), default=given)


def other_splits(splits: list[int]) -> list[int]:
    """The sizes with one element moved from the largest to the next."""
    moved = list(splits)
    largest = moved.index(max(moved))
    moved[largest] -= 1
    moved[(largest + 1) % len(moved)] += 1
    return moved


def without_last(ranks: Iterable[int]) -> list[int]:
    return list(ranks)[:-1]


# What a rank waits for in vain


def held_lock() -> threading.Lock:
    """A lock that somebody else has."""
    lock = threading.Lock()
    holder = threading.Thread(target=lock.acquire, daemon=True)
    holder.start()
    holder.join()
    return lock


def gil_keeper() -> Callable[[int], int]:
    """C's ``sleep``, called with the interpreter's lock held."""
    sleep: Callable[[int], int] = ctypes.PyDLL(None).sleep
    return sleep


def silent_pipe() -> int:
    """A descriptor that never has anything to read."""
    reading, writing = os.pipe()
    _kept.append(writing)
    return reading


def barrier() -> object:
    """A barrier of all ranks that is entered on the calling line; nothing before there is a group.

    Needs torch.
    """
    import torch.distributed as dist

    return dist.barrier if dist.is_initialized() else (lambda: None)


def end_of_slowness(began: float, share: float) -> float:
    """When what began then has lasted longer by that share."""
    end = now()
    return end + (end - began) * share


class Swallowing:
    """A block whose exceptions are told and swallowed."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        traceback.print_exception(error)
        return True


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
            read(silent_pipe(), 1)
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
