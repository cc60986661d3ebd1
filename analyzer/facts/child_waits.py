"""A rank that waits for a process of its own to end.

Its stack shows a line of the user's that calls ``subprocess``, and no more.
What the process does is seen from outside: it computes, it writes into a pipe
that nobody reads, or it waits, too.
"""

from __future__ import annotations

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.stack_position import main_thread
from hanglab.analyzer.facts.thresholds import BUSY, NAMED_PROCESSES
from hanglab.analyzer.facts.wait_channels import Channel, channel_of
from hanglab.recorder.case.records import ProcessSample


def child_wait(view: RankView) -> tuple[float, str] | None:
    """Confidence that the rank does not come back from there, and what it waits for."""
    if channel_of(view.wchan) is not Channel.CHILD and not _inside_subprocess(view):
        return None
    children = [one for one in _latest(view) if one.state not in ("Z", "X", "")]
    if not children:
        return None
    at_work = view.movement is not None and view.movement.share_below >= BUSY
    whom = " and ".join(f"{one.name} (pid {one.pid})" for one in children[:NAMED_PROCESSES])
    noun = "its child process" if len(children) == 1 else "one of its child processes"
    words = f"it waits for {noun} {whom}"
    if at_work:
        return 0.6, f"{words}; processes below it use a processor all the while"
    doing = _doing(children[0]) if len(children) == 1 else ""
    return 0.9, words + (f", which {doing}" if doing else "")


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


def _latest(view: RankView) -> list[ProcessSample]:
    """The rank's own children at the capture, those that it started first before the others."""
    found = {
        one.pid: one
        for one in view.processes
        if one.kind == "child" and one.capture and one.ppid == view.pid
    }
    return [found[pid] for pid in sorted(found)]


def _doing(child: ProcessSample) -> str:
    if channel_of(child.wchan) is Channel.PIPE_WRITE:
        return "writes into a pipe that nobody empties: read it, or use communicate()"
    if child.state == "D":
        return f"is blocked in the kernel ({child.wchan})" if child.wchan else "is blocked"
    return f"rests (state {child.state}, kernel: {child.wchan})" if child.wchan else ""
