"""Disks that are full: told by the error, or by the room that was left when a rank gave up."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from hanglab.analyzer.causes.exhaustion import resource_proposal
from hanglab.analyzer.causes.thresholds import DISK_ERROR_S
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import Kind, texts_of
from hanglab.analyzer.facts.failures import Failure
from hanglab.analyzer.facts.full_file_systems import SHARED_MEMORY, is_full
from hanglab.analyzer.facts.resource_failures import (
    location_of,
    matching_line,
    own_failures,
    raised_by,
    size,
    text_of,
)
from hanglab.analyzer.facts.stack_position import StackPlace
from hanglab.analyzer.proposal import Proposal, detector
from hanglab.analyzer.strengths import CONFIRMED, SEEN
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.host_records import FileSystem
from hanglab.recorder.case.records import Raised

_SAID = texts_of(Cause.DISK_FULL, Kind.ROOT)
#: Errors of writing that do not give the reason.
_FAILED_WRITE = texts_of(Cause.DISK_FULL, Kind.HINT)


@detector
def disk_full(facts: CaseFacts) -> Iterator[Proposal]:
    """An error of writing, or a rank that waits for a thread that met one, and a full disk."""
    for failure in own_failures(facts):
        if failure.cause not in (Cause.DISK_FULL, Cause.EXCEPTION, Cause.CRASH):
            continue
        if SHARED_MEMORY.search(text_of(failure)):
            continue
        full_disks = _at_the_time(failure) or _full_disks(facts, failure.view)
        said = _SAID.search(text_of(failure))
        failed = _FAILED_WRITE.search(text_of(failure)) or _bus_error(failure.view)
        if said or (failed and full_disks):
            yield _proposal(facts, failure, full_disks)
    if facts.stuck:
        yield from _swallowed(facts)


def _at_the_time(failure: Failure) -> list[str]:
    raised = raised_by(failure)
    return full_disks_then(raised) if raised is not None else []


def full_disks_then(raised: Raised) -> list[str]:
    """Full file systems that the rank itself saw when its write had failed."""
    return [
        f"{disk.path} ({disk.filesystem}) had no inode left"
        if disk.no_inodes
        else f"{disk.path} ({disk.filesystem}) had {size(disk.free_bytes)} left of "
        f"{size(disk.size_bytes)}"
        for disk in raised.full
        if disk.path != "/dev/shm"
    ]


def _full_disks(facts: CaseFacts, view: RankView) -> list[str]:
    spaces = facts.host_of(view.rank).spaces(view.rank)
    return [_words(space) for space in spaces if space.uses != ["shm"] and is_full(space)]


def _bus_error(view: RankView) -> bool:
    """A page of a mapped file that has no room on the disk."""
    return view.ended is not None and view.ended.signal == signal.SIGBUS


def _words(space: FileSystem) -> str:
    if space.free_inodes == 0:
        return f"{space.path} ({space.filesystem}) has no inode left of {space.inodes}"
    return (
        f"{space.path} ({space.filesystem}) has {size(space.free_bytes)} left of "
        f"{size(space.size_bytes)}"
    )


def _proposal(facts: CaseFacts, failure: Failure, full_disks: list[str]) -> Proposal:
    rank = failure.view.rank
    error = matching_line(failure, _SAID)
    return resource_proposal(
        facts,
        Cause.DISK_FULL,
        [failure.view],
        f"ran out of disk space ({full_disks[0] if full_disks else error})",
        [Evidence(failure.source, rank, error)]
        + [Evidence("host", rank, row) for row in full_disks],
        location=location_of(failure),
    )


def _swallowed(facts: CaseFacts) -> Iterator[Proposal]:
    """A rank that its peers wait for, that waits for a part of itself, and met a full disk.

    What it met may be long past and dealt with: it must be the last thing that
    happened, or the disk must still be full; and the rank must wait on something
    that only its own threads can give.
    """
    for sink in facts.graph.sinks:
        view = facts.ranks.get(sink.rank)
        if view is None or not sink.outside or not _waits_for_itself(view):
            continue
        error, full_disks, source = _last_met(facts, view)
        if error:
            yield resource_proposal(
                facts,
                Cause.DISK_FULL,
                [view],
                f"waits for what a full disk has stopped "
                f"({full_disks[0] if full_disks else error})",
                [Evidence(source, view.rank, error)]
                + [Evidence("host", view.rank, row) for row in full_disks],
                location=view.location(),
                confidence=CONFIRMED if source == "exceptions" else SEEN,
            )


def _waits_for_itself(view: RankView) -> bool:
    """True if the rank waits for what only a thread of its own can give."""
    places = (StackPlace.QUEUE, StackPlace.JOIN, StackPlace.CONDITION)
    return view.ended is None and view.position.place in places


def met_full_disk(facts: CaseFacts, view: RankView) -> bool:
    """True if the rank waits for a part of itself that met a full disk."""
    return _waits_for_itself(view) and bool(_last_met(facts, view)[0])


def failed_on_full_disk(raised: Raised) -> bool:
    """True if an error of writing does not say that the disk was full, which the rank saw."""
    text = f"{raised.type}: {raised.message}"
    known = _FAILED_WRITE.search(text) and not _SAID.search(text)
    return bool(known) and bool(full_disks_then(raised))


def _last_met(facts: CaseFacts, view: RankView) -> tuple[str, list[str], str]:
    """Words said of a full disk, the disk, and the source of the words; "" if there are none."""
    for raised in reversed(view.handled):
        text = "\n".join([f"{raised.type}: {raised.message}", *raised.because])
        match = _SAID.search(text)
        if (
            match
            and not SHARED_MEMORY.search(text)
            and _just_before(facts, view, raised.at.wall_ns)
        ):
            line = next(line for line in text.splitlines() if _SAID.search(line))
            return line[:300], full_disks_then(raised), "exceptions"
    full_disks = _full_disks(facts, view)
    said = [line for line in view.stderr.splitlines()[-200:] if _SAID.search(line)]
    return (said[-1].strip()[:300], full_disks, "stderr") if said and full_disks else ("", [], "")


def _just_before(facts: CaseFacts, view: RankView, at_ns: int) -> bool:
    """True if nothing of the rank has moved since, or hardly anything."""
    trigger = facts.job.trigger if facts.job else None
    if trigger is None or view.movement is None:
        return False
    rested_s = max(view.movement.quiet_s, view.movement.rested_s)
    return at_ns >= trigger.at.wall_ns - (rested_s + DISK_ERROR_S) * 1e9
