"""Files and keys of stores that a rank asks for again and again while it stands still."""

from __future__ import annotations

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.thresholds import (
    OLDER_FILE_NS,
    OLDER_FILE_OF_HOST_NS,
    POLL_LATE_S,
    POLL_TIMES,
)
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import Poll

_LISTS = frozenset({"listdir", "scandir"})
#: Functions that ask for nothing but whether a file is there, or try to make it.
_EXISTENCE = frozenset(
    {"exists", "lexists", "isfile", "isdir", "islink", "is_file", "is_dir", "is_symlink"}
    | {"access", "open"}
)


def polls(view: RankView) -> list[Poll]:
    """Questions that a rank still asks, the most frequent first.

    A question counts where the function that asked is on the stack of the main thread, it was
    asked several times, and the latest time is not longer ago than is usual for it.
    """
    if view.ended is not None:
        return []
    stands = {(frame.file, frame.function) for frame in view.user_frames}
    asked = [
        poll
        for poll in view.read(files.POLLS)
        if poll.count >= POLL_TIMES
        and (poll.file, poll.function) in stands
        and poll.ago_s <= POLL_LATE_S + 2 * poll.asked_s / (poll.count - 1)
    ]
    return sorted(asked, key=lambda poll: -poll.count)


def poll_words(facts: CaseFacts, poll: Poll) -> str:
    """``polls for the file /a/b, which is not there``."""
    if poll.kind == "file":
        if poll.call in _LISTS and poll.found:
            return f"polls for another content of the folder {poll.what}"
        words = f"polls for the file {poll.what}, which is {'' if poll.found else 'not '}there"
        return words + (" since before the job began" if is_older_than_job(facts, poll) else "")
    key = f"polls for the store's key {poll.prefix + poll.what!r}"
    if poll.value is not None:
        return f"{key}, which stays at {poll.value}"
    return f"{key}, which is {'' if poll.found else 'not '}set"


def poll_frequency(poll: Poll) -> str:
    return f"asked {poll.count} times in {poll.asked_s:.1f} s"


def is_older_than_job(facts: CaseFacts, poll: Poll) -> bool:
    """True of a file that no process of the job has made, so that none is to take it away.

    Only where nothing else was asked: who asks for its time or size waits for a new content.
    """
    margin = OLDER_FILE_OF_HOST_NS if poll.by_host else OLDER_FILE_NS
    starts = [v.process.started.wall_ns for v in facts.ranks.values() if v.process is not None]
    return (
        poll.found
        and _EXISTENCE.issuperset(poll.call.split(", "))
        and poll.changed_ns is not None
        and bool(starts)
        and poll.changed_ns < min(starts) - margin
    )
