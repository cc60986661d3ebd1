"""State of a rank's data loader: its queues, the age of its last batch, its workers."""

from __future__ import annotations

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.stack_position import main_thread, position_of
from hanglab.analyzer.verdict import Location
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case.progress_records import Loader
from hanglab.recorder.case.records import StackFrame, StackSample, ThreadStack


def waited_for(view: RankView) -> Loader | None:
    """The loader that the rank most likely waits for: the latest with batches asked for."""
    loaders = view.progress.loaders if view.progress else []
    asked = [one for one in loaders if one.outstanding > 0]
    live = [one for one in asked if not one.ended]
    return max(live or asked, key=lambda one: one.number, default=None)


def queue_words(view: RankView) -> str:
    """``: 2 batches asked for, none ready, the last came 3.1 s before``; "" if unknown."""
    loader = waited_for(view)
    if loader is None:
        return ""
    parts = [f"{loader.outstanding} {_batches(loader.outstanding)} asked for"]
    if loader.ready is not None:
        parts.append(f"{loader.ready or 'none'} ready")
    if loader.indices is not None:
        parts.append(f"{loader.indices or 'none'} not yet begun")
    if loader.delivered_ns is not None and loader.looked_ns is not None:
        age = max(0, loader.looked_ns - loader.delivered_ns) / 1e9
        parts.append(f"the last of {loader.delivered} came {age:.1f} s before")
    elif not loader.delivered:
        parts.append("none ever came")
    return ": " + ", ".join(parts)


def _batches(count: int) -> str:
    return "batch" if count == 1 else "batches"


def stuck_worker(view: RankView) -> StackSample | None:
    """A loader worker that is busy with the user's code rather than idle."""
    return next((sample for sample in view.worker_stacks() if _users_frame(view, sample)), None)


def worker_words(view: RankView, worker: StackSample | None) -> tuple[str, Location | None]:
    """Words and line of a worker; "" and None without one."""
    frame = None if worker is None else _users_frame(view, worker)
    if worker is None or frame is None:
        return "", None
    location = view.location(frame)
    return f"; its worker process {worker.pid} is{name_line(location)}", location


def _users_frame(view: RankView, sample: StackSample) -> StackFrame | None:
    """The innermost frame of the user's that a worker's loop called; None of what is no worker."""
    thread = main_thread(sample) or sample.threads[0]
    if position_of(thread, view.code).user is None or sample.kind != "worker":
        return None
    mine = [f for f in thread.frames if view.code.owner(f.file) is Owner.USER]
    fetching = any(f.function in ("_worker_loop", "fetch") for f in thread.frames)
    return mine[0] if mine and fetching and _inside_fetch(thread, mine[0]) else None


def _inside_fetch(thread: ThreadStack, user: StackFrame) -> bool:
    """True if the user's frame was called by the worker's loop, and not around it."""
    loop = next((i for i, f in enumerate(thread.frames) if f.function == "_worker_loop"), -1)
    return loop > thread.frames.index(user)
