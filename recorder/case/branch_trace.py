"""Reading ``branches.bin``: the latest branches that a rank took.

The file may come from a rank that died in the middle of a write, or from a stranger.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_layout import BranchSlot

_HEADER = struct.Struct("<8q")


class NoBranches(ValueError):
    """The bytes are no file of branches of a version that this reader knows."""


class BranchPlace(NamedTuple):
    """The statement or expression that decides; ``column`` counts bytes, as Python's does."""

    file: str
    line: int
    column: int


class TakenBranch(NamedTuple):
    """One branch taken: when, by the host's wall clock, where, and which of the ways on."""

    at_ns: int
    place: BranchPlace
    kind: int


class BranchTrace(NamedTuple):
    """Oldest first; ``whole`` where it goes back to the rank's first branch."""

    branches: list[TakenBranch]
    whole: bool


def read_branches(data: bytes) -> BranchTrace:
    """Raises NoBranches."""
    if len(data) < layout.HEADER_BYTES:
        raise NoBranches("is shorter than its header")
    header = _HEADER.unpack_from(data)
    total, capacity, used = (
        header[BranchSlot.TOTAL],
        header[BranchSlot.CAPACITY],
        header[BranchSlot.TEXT_USED],
    )
    if header[BranchSlot.MAGIC] != layout.MAGIC or header[BranchSlot.VERSION] != layout.VERSION:
        raise NoBranches(f"is no file of branches of version {layout.VERSION}")
    texts = layout.HEADER_BYTES + capacity * layout.RECORD_BYTES
    if not 0 < capacity <= 1 << 20 or total < 0 or not 0 <= used <= len(data) - texts:
        raise NoBranches("is cut off, or says more than it holds")
    names = _names(data[texts : texts + used])
    records = list(struct.iter_unpack("<2q", data[layout.HEADER_BYTES : texts]))
    if total <= capacity:
        records = records[:total]
    else:
        # The oldest may be half overwritten.
        first = total % capacity
        records = (records[first:] + records[:first])[1:]
    places: dict[int, BranchPlace | None] = {}
    branches = []
    for at_ns, way in records:
        known = way >> 8
        if known not in places:
            file, line, column = way >> 48, way >> 24 & 0xFFFFFF, way >> 8 & 0xFFFF
            inside = 0 < way and file < len(names) and line > 0
            places[known] = BranchPlace(names[file], line, column) if inside else None
        place = places[known]
        if place is not None:
            branches.append(TakenBranch(at_ns, place, way & 0xFF))
    return BranchTrace(branches, total <= capacity)


def _names(data: bytes) -> list[str]:
    names, at = [], 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        if size > len(data) - at - 8:
            break
        names.append(os.fsdecode(data[at + 8 : at + 8 + size]))
        at += 8 + size
    return names
