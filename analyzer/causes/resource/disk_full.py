"""Disks that are full: told by the error, or by the room that was left when a rank gave up."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.evidence import RankView
from hanglab.analyzer.facts.failures import Trouble
from hanglab.analyzer.facts.resource_failures import (
    CONFIRMED,
    MIB,
    location_of,
    own_troubles,
    raised_by,
    ran_out,
    size,
    text_of,
    told_by,
)
from hanglab.analyzer.facts.stack_position import Place
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.host_records import FileSystem
from hanglab.recorder.case.records import Raised

#: What is said by whoever meets a full disk.
_SAID = re.compile(r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]")
#: What belongs to shared memory, which is a file system too.
SHARED = re.compile(r"shared memory|/dev/shm|</?torch_\d+_|nccl-[A-Za-z0-9]{6}")
#: Errors of writing that do not give the reason, such as torch.save's and sqlite's.
_FAILED_WRITE = re.compile(
    r"PytorchStreamWriter failed|file write failed|unexpected pos \d+ vs \d+"
    r"|disk is full|disk I/O error|iostream error|write failed|short write"
)
#: Room below which a file system is full, in bytes and as a share of its size.
_LEFT = MIB // 4
_SHARE = 0.001
#: Seconds before a rank came to rest in which an error may be why.
_SINCE_S = 1.0


def full(space: FileSystem) -> bool:
    """Whether nothing more goes in.  One that is 99 % full still has room."""
    if space.free_bytes is not None and space.size_bytes:
        if space.free_bytes <= min(_LEFT, max(_SHARE * space.size_bytes, 4096)):
            return True
    return space.free_inodes == 0


def disk_full(known: Known) -> Iterator[Proposal]:
    """An error of writing, or a rank that waits for a thread that met one, and a full disk."""
    for trouble in own_troubles(known):
        if trouble.cause not in (Cause.DISK_FULL, Cause.EXCEPTION, Cause.CRASH):
            continue
        if SHARED.search(text_of(trouble)):
            continue
        rooms = _at_the_time(trouble) or _full_disks(known, trouble.view)
        said = _SAID.search(text_of(trouble))
        failed = _FAILED_WRITE.search(text_of(trouble)) or _bus_error(trouble.view)
        if said or (failed and rooms):
            yield _proposal(known, trouble, rooms)
    if known.stuck:
        yield from _swallowed(known)


def _at_the_time(trouble: Trouble) -> list[str]:
    raised = raised_by(trouble)
    return rooms_then(raised) if raised is not None else []


def rooms_then(raised: Raised) -> list[str]:
    """Full file systems that the rank itself saw when its write had failed."""
    return [
        f"{disk.path} ({disk.filesystem}) had no inode left"
        if disk.no_inodes
        else f"{disk.path} ({disk.filesystem}) had {size(disk.free_bytes)} left of "
        f"{size(disk.size_bytes)}"
        for disk in raised.full
        if disk.path != "/dev/shm"
    ]


def _full_disks(known: Known, view: RankView) -> list[str]:
    spaces = known.host_of(view.rank).spaces(view.rank)
    return [_words(space) for space in spaces if space.uses != ["shm"] and full(space)]


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


def _proposal(known: Known, trouble: Trouble, rooms: list[str]) -> Proposal:
    rank = trouble.view.rank
    error = told_by(trouble, _SAID)
    return ran_out(
        known,
        Cause.DISK_FULL,
        [trouble.view],
        f"ran out of disk space ({rooms[0] if rooms else error})",
        [Evidence(trouble.source, rank, error)] + [Evidence("host", rank, row) for row in rooms],
        location=location_of(trouble),
    )


def _swallowed(known: Known) -> Iterator[Proposal]:
    """A rank that its peers wait for, that waits for a part of itself, and met a full disk.

    What it met may be long past and dealt with: it must be the last thing that
    happened, or the disk must still be full; and the rank must wait on something
    that only its own threads can give.
    """
    for sink in known.picture.sinks:
        view = known.ranks.get(sink.rank)
        if view is None or not sink.outside or view.ended is not None:
            continue
        if view.standing.place not in (Place.QUEUE, Place.JOIN, Place.CONDITION):
            continue
        error, rooms, source = _last_met(known, view)
        if error:
            yield ran_out(
                known,
                Cause.DISK_FULL,
                [view],
                f"waits for what a full disk has stopped ({rooms[0] if rooms else error})",
                [Evidence(source, view.rank, error)]
                + [Evidence("host", view.rank, row) for row in rooms],
                location=view.location(),
                confidence=CONFIRMED if source == "exceptions" else CONFIRMED - 0.08,
            )


def _last_met(known: Known, view: RankView) -> tuple[str, list[str], str]:
    """What was said of a full disk, which one it was, and where it was said; "" if nothing."""
    for raised in reversed(view.handled):
        text = "\n".join([f"{raised.type}: {raised.message}", *raised.because])
        match = _SAID.search(text)
        if match and not SHARED.search(text) and _just_before(known, view, raised.at.wall_ns):
            line = next(line for line in text.splitlines() if _SAID.search(line))
            return line[:300], rooms_then(raised), "exceptions"
    rooms = _full_disks(known, view)
    said = [line for line in view.stderr.splitlines()[-200:] if _SAID.search(line)]
    return (said[-1].strip()[:300], rooms, "stderr") if said and rooms else ("", [], "")


def _just_before(known: Known, view: RankView, at_ns: int) -> bool:
    """Whether nothing of the rank has moved since, or hardly anything."""
    trigger = known.job.trigger if known.job else None
    if trigger is None or view.movement is None:
        return False
    rested_s = max(view.movement.quiet_s, view.movement.rested_s)
    return at_ns >= trigger.at.wall_ns - (rested_s + _SINCE_S) * 1e9
