"""Holders of the interpreter's lock in a rank that does not answer."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.thresholds import PAUSES, SILENT_NS
from hanglab.analyzer.verdict import Location


def recorder_ran(facts: CaseFacts, view: RankView) -> bool:
    """True if the rank's own recorder thread ran at the capture."""
    trigger = facts.job.trigger if facts.job else None
    beat = view.progress.heartbeat_mono_ns if view.progress else 0
    if trigger is not None and beat:
        return trigger.at.mono_ns - beat < SILENT_NS
    return view.has_dump


def gil_holder(facts: CaseFacts, view: RankView) -> tuple[str, Location | None] | None:
    """Words and line if a thread of the rank holds the lock in C and never lets go.

    None where the rank answers, and where the holder computes and has not done
    so for much longer than the rank has ever rested: it may come to its end.
    """
    if view.captured_stack is None or view.state in ("T", "Z", "X") or recorder_ran(facts, view):
        return None
    holders = [thread for thread in view.captured_stack.threads if thread.owns_gil]
    if not holders:
        return None
    holder = holders[0]
    movement = view.movement
    if holder.active and (movement is None or movement.quiet_s < PAUSES * movement.longest_pause_s):
        return None
    frame = holder.frames[0] if holder.frames else None
    at = f" in {frame.function}" if frame else ""
    line = view.code.innermost_user(holder.frames)
    return (
        f"thread {holder.name or holder.os_thread_id} holds the GIL{at} and never lets go",
        view.location(line) if line is not None else None,
    )
