"""Disks that are full: told by the error, or by the room that was left when a rank gave up."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.evidence.standing import Place
from hanglab.analyzer.heuristics.exits import Trouble
from hanglab.analyzer.heuristics.proposal import Proposal
from hanglab.analyzer.heuristics.resources import (
    CONFIRMED,
    MIB,
    location_of,
    own_troubles,
    ran_out,
    size,
)
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.surroundings import Space

#: What is said by whoever meets a full disk.
_SAID = re.compile(r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]")
#: Errors of writing that do not give the reason, such as torch.save's and sqlite's.
_FAILED_WRITE = re.compile(
    r"PytorchStreamWriter failed|file write failed|unexpected pos \d+ vs \d+"
    r"|disk is full|disk I/O error|iostream error|write failed|short write"
)
#: Room below which a file system is full, in bytes and as a share of its size.
_LEFT = MIB // 4
_SHARE = 0.001


def full(space: Space) -> bool:
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
        spaces = _full_disks(known, trouble.view)
        if trouble.cause is Cause.DISK_FULL:
            if spaces:
                yield _proposal(known, trouble, spaces)
        elif spaces and (_FAILED_WRITE.search(trouble.detail) or _bus_error(trouble.view)):
            yield _proposal(known, trouble, spaces)
    if known.stuck:
        yield from _swallowed(known)


def _full_disks(known: Known, view: RankView) -> list[Space]:
    spaces = known.host_of(view.rank).spaces(view.rank)
    return [space for space in spaces if space.uses != ["shm"] and full(space)]


def _bus_error(view: RankView) -> bool:
    """A page of a mapped file that has no room on the disk."""
    return view.ended is not None and view.ended.signal == signal.SIGBUS


def _words(space: Space) -> str:
    if space.free_inodes == 0:
        return f"{space.path} ({space.filesystem}) has no inode left of {space.inodes}"
    return (
        f"{space.path} ({space.filesystem}) has {size(space.free_bytes)} left of "
        f"{size(space.size_bytes)}"
    )


def _proposal(known: Known, trouble: Trouble, spaces: list[Space]) -> Proposal:
    rank = trouble.view.rank
    return ran_out(
        known,
        Cause.DISK_FULL,
        [trouble.view],
        f"ran out of disk space on {spaces[0].path}",
        [Evidence(trouble.source, rank, trouble.detail)]
        + [Evidence("host", rank, _words(space)) for space in spaces],
        location=location_of(trouble),
    )


def _swallowed(known: Known) -> Iterator[Proposal]:
    """A rank that its peers wait for, that waits for a part of itself, and said its disk is full.

    What it said may be long past and dealt with: the disk must be full now, and
    the rank must wait on something that only its own threads can give.
    """
    for sink in known.picture.sinks:
        view = known.ranks.get(sink.rank)
        if view is None or not sink.outside or view.ended is not None:
            continue
        if view.standing.place not in (Place.QUEUE, Place.JOIN, Place.CONDITION):
            continue
        said = [line for line in view.stderr.splitlines()[-200:] if _SAID.search(line)]
        spaces = _full_disks(known, view)
        if said and spaces:
            yield ran_out(
                known,
                Cause.DISK_FULL,
                [view],
                f"waits for what a full disk has stopped ({spaces[0].path})",
                [Evidence("stderr", view.rank, said[-1].strip()[:300])]
                + [Evidence("host", view.rank, _words(space)) for space in spaces],
                location=view.location(),
                confidence=CONFIRMED - 0.08,
            )
