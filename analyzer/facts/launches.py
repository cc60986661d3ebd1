"""Launches on enqueued backends: what hosts have launched, and hosts that cannot.

A host on an enqueued backend goes on: where it stands at the capture says little of what its
device waits in.
"""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.verdict import Location
from hanglab.recorder.case.backends import backends_in
from hanglab.recorder.case.records import StackFrame


def launched_line(facts: CaseFacts, rank: int) -> Location | None:
    """Line of the first operation that a rank has launched and its device has not done.

    None where the host carries its operations out itself.
    """
    view = facts.ranks.get(rank)
    if view is None:
        return None
    for call in facts.graph.unfinished.get(rank, []):
        backends = {one.backend for one in view.groups if one.id == call.group.name}
        if any(one.enqueued for setting in backends for one in backends_in(setting)):
            frames = view.code.user_frames(call.stack)
            if frames:
                frame = StackFrame(frames[0].function, frames[0].file, frames[0].line)
                return view.location(frame)
    return None


def hosts_run_ahead(facts: CaseFacts) -> bool:
    """True if the job has a group whose operations its hosts launch and do not carry out."""
    settings = {one.backend for view in facts.ranks.values() for one in view.groups}
    return any(one.enqueued for setting in settings for one in backends_in(setting))


def held_in_launch(facts: CaseFacts, rank: int) -> bool:
    """True if a host is held in a call that no buffer knows, while its device has nothing to do.

    A launch comes back at once, unless a communicator has to be made for it first.
    """
    view = facts.ranks.get(rank)
    if view is None or view.progress is None or not view.progress.operations:
        return False
    last = view.progress.operations[-1]
    settings = {one.backend for one in view.groups if one.id == last.group}
    enqueued = any(one.enqueued for setting in settings for one in backends_in(setting))
    return enqueued and last.returned_ns is None and not facts.graph.unfinished.get(rank)


def is_blocking(view: RankView, group: str) -> bool:
    """True if the rank's host is in its operations on that group until they are over."""
    backends = {one.backend for one in view.groups if one.id == group}
    return bool(backends) and all(one.blocking for b in backends for one in backends_in(b))
