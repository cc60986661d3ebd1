"""Locks of a process that one of its threads holds within an operation and another waits for.

No lock says who holds it.  But a thread that sleeps in a ``with`` statement's entry waits for the
lock of that, and one whose stack is in the body of a ``with`` of the same expression in the same
file has it.  Elsewhere the same words, as ``self.lock``, mean another object.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hanglab.analyzer.code_owners import Owner
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.source_loops import function_at
from hanglab.recorder.case.records import StackFrame, ThreadStack


@dataclass(frozen=True)
class HeldLock:
    """Frames of the thread that holds a lock, within an operation, and of one that waits for it."""

    holder: StackFrame
    waiter: StackFrame


def lock_held_in_operation(facts: CaseFacts, view: RankView) -> HeldLock | None:
    """The lock that a thread of the rank waits for while another has it in an operation."""
    sample = view.captured_stack
    if sample is None:
        return None
    waiting = {one.os_thread_id for one in view.waits if one.kind == "lock" and one.forever}
    for waiter in sample.threads:
        wanted = _wanted(facts, view, waiter) if waiter.os_thread_id in waiting else None
        if wanted is None:
            continue
        for holder in sample.threads:
            if holder is waiter or not _is_in_torch(view, holder):
                continue
            for frame in view.code.user_frames(holder.frames):
                if frame.file == waiter.frames[0].file and wanted in _around(facts, frame):
                    return HeldLock(frame, waiter.frames[0])
    return None


def _is_in_torch(view: RankView, thread: ThreadStack) -> bool:
    owners = (view.code.owner(frame.file) for frame in thread.frames)
    return next((one for one in owners if one is not Owner.RECORDER), None) is Owner.TORCH


def _wanted(facts: CaseFacts, view: RankView, thread: ThreadStack) -> str | None:
    """The expression of the ``with`` that the thread's innermost frame is about to enter."""
    if not thread.frames or view.code.owner(thread.frames[0].file) is not Owner.USER:
        return None
    frame = thread.frames[0]
    for node in _withs(facts, frame):
        for item in node.items:
            first, last = item.context_expr.lineno, item.context_expr.end_lineno or 0
            if first <= frame.line <= last and len(node.items) == 1:
                return ast.dump(item.context_expr)
    return None


def _around(facts: CaseFacts, frame: StackFrame) -> list[str]:
    """Expressions of the ``with`` statements in whose bodies a frame stands."""
    return [
        ast.dump(item.context_expr)
        for node in _withs(facts, frame)
        if node.body[0].lineno <= frame.line <= (node.end_lineno or 0)
        for item in node.items
    ]


def _withs(facts: CaseFacts, frame: StackFrame) -> list[ast.With]:
    tree = function_at(facts, frame.file, frame.line)
    return [n for n in (ast.walk(tree) if tree is not None else ()) if isinstance(n, ast.With)]
