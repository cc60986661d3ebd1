"""A rank that waits for a process of its own: for its end, or for what it is to write.

Its stack shows a line of the user's that calls ``subprocess`` or reads from a pipe, and no more.
What the process does is seen from outside: it computes, it writes into a pipe
that nobody reads, it stands at a line, it waits, too, or it is dead.
"""

from __future__ import annotations

from collections.abc import Collection

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.stack_position import main_thread, position_of
from hanglab.analyzer.facts.thresholds import BUSY, NAMED_PROCESSES
from hanglab.analyzer.facts.wait_channels import Channel, channel_of
from hanglab.analyzer.strengths import CANDIDATES, SEEN
from hanglab.analyzer.wording import name_line
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import ProcessSample, StackSample


def child_wait(view: RankView) -> tuple[float, str] | None:
    """Confidence that the rank does not come back from there, and what it waits for."""
    if channel_of(view.wchan) is not Channel.CHILD and not _inside_subprocess(view):
        return _pipe_wait(view)
    ended = channel_of(view.wchan) is Channel.CHILD
    # Who waits for the end of a process waits for whichever it started, by fork as well.
    kinds = ("child", "worker") if ended else ("child",)
    children = [one for one in _latest(view, kinds) if one.state not in ("Z", "X", "")]
    if not children:
        return None
    at_work = view.movement is not None and view.movement.share_below >= BUSY
    whom = " and ".join(f"{one.name} (pid {one.pid})" for one in children[:NAMED_PROCESSES])
    noun = "its child process" if len(children) == 1 else "one of its child processes"
    words = f"it waits for {noun} {whom}"
    if at_work:
        return CANDIDATES, f"{words}; processes below it use a processor all the while"
    doing = _doing_or_place(view, children[0]) if len(children) == 1 else ""
    return SEEN, words + (f", which {doing}" if doing else "")


def _pipe_wait(view: RankView) -> tuple[float, str] | None:
    """Words for a rank blocked on pipes and unix sockets that no other rank has an end of."""
    rows = [row for row in view.read(files.DESCRIPTOR_WAITS) if row.pid == view.pid]
    ends = {end.pid: end for row in rows for end in row.others}
    if not rows or any(row.kind not in ("pipe", "unix") for row in rows):
        return None
    if any(end.rank != view.rank for end in ends.values()):
        return None
    aim = "to write into" if rows[0].sends else "for data from"
    if not ends:
        words = f"it waits {aim} a pipe or socket whose other end no other process has"
        return SEEN, words + _dead_child(view)
    whom = [f"{end.name} (pid {end.pid})" for end in ends.values()][:NAMED_PROCESSES]
    noun = "its process" if len(ends) == 1 else "its processes"
    words = f"it waits {aim} a pipe or socket of {noun} {' and '.join(whom)}"
    if view.movement is not None and view.movement.share_below >= BUSY:
        return CANDIDATES, f"{words}; processes below it use a processor all the while"
    doing = _place_or_state(view, next(iter(ends))) if len(ends) == 1 else ""
    return SEEN, words + (f", which {doing}" if doing else "")


def _dead_child(view: RankView) -> str:
    """Words for the end of the rank's latest process that did not end well."""
    dead = [one for one in view.children if one.signal is not None or one.code]
    if not dead:
        return ""
    one = dead[-1]
    how = f"signal {one.signal}" if one.signal is not None else f"code {one.code}"
    return f"; its process {one.name} (pid {one.pid}) ended with {how}"


def _place_or_state(view: RankView, pid: int) -> str:
    place = _place(view, pid)
    return place or next((_doing(one) for one in _latest(view) if one.pid == pid), "")


def _doing_or_place(view: RankView, child: ProcessSample) -> str:
    """Words for what a child is blocked in, or where it stands."""
    if channel_of(child.wchan) is Channel.PIPE_WRITE:
        return _doing(child)
    if any(one.pid == child.pid and _feeds_queue(view, one) for one in view.worker_stacks()):
        return "writes into a queue that nobody empties: take from that before its end"
    return _place(view, child.pid) or _doing(child)


def _feeds_queue(view: RankView, sample: StackSample) -> bool:
    """True if a thread of it sends what was put into a queue of processes."""
    return any(
        [frame.function.rpartition(".")[2] for frame in thread.frames[:1]] == ["_send"]
        and thread.frames[0].file.endswith("/multiprocessing/connection.py")
        and view.code.owner(thread.frames[0].file) is Owner.STDLIB
        and any(frame.file.endswith("/multiprocessing/queues.py") for frame in thread.frames)
        for thread in sample.threads
    )


def _place(view: RankView, pid: int) -> str:
    for sample in view.worker_stacks():
        thread = main_thread(sample) if sample.pid == pid else None
        user = position_of(thread, view.code).user if thread is not None else None
        if user is not None:
            return f"is{name_line(view.location(user))}"
    return ""


def _inside_subprocess(view: RankView) -> bool:
    """True if the library's own code waits there: on a pipe of the process, say."""
    sample = view.captured_stack
    thread = main_thread(sample) if sample is not None else None
    if thread is None:
        return False
    return any(
        frame.file.endswith("/subprocess.py")
        and view.code.owner(frame.file) is Owner.STDLIB
        and frame.function in ("wait", "_wait", "communicate", "_communicate")
        for frame in thread.frames
    )


def _latest(view: RankView, kinds: Collection[str] = ("child",)) -> list[ProcessSample]:
    """The rank's own children at the capture, those that it started first before the others."""
    found = {
        one.pid: one
        for one in view.processes
        if one.kind in kinds and one.capture and one.ppid == view.pid
    }
    return [found[pid] for pid in sorted(found)]


def _doing(child: ProcessSample) -> str:
    if channel_of(child.wchan) is Channel.PIPE_WRITE:
        return "writes into a pipe that nobody empties: read it, or use communicate()"
    if child.state == "D":
        return f"is blocked in the kernel ({child.wchan})" if child.wchan else "is blocked"
    return f"rests (state {child.state}, kernel: {child.wchan})" if child.wchan else ""
