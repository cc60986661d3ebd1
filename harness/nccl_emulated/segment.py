"""Memory that the members of a communicator share: one lane each, and one box for each pair.

Collectives go by rounds.  In a round a member publishes one slot of its lane, which its peers
read; a slot is used again once all have read it.  Messages go through the box of sender and
receiver.  The file has no name, and is gone with the last process that maps it.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

import torch

#: Slots of a lane: so many rounds may be open at once.
SLOTS = 8
#: Bytes that a slot takes; what is longer goes in several rounds.
SLOT_BYTES = 1 << 20
#: Bytes that a box takes; what is longer goes in several pieces.
BOX_BYTES = 1 << 18
_PAGE = 4096
_HEAD = struct.Struct("<QqQ")


class Head(NamedTuple):
    """Announcement of a call to the peers, before any data moves."""

    kind: int
    root: int
    #: Bytes that one member hands to another.
    wire: int


class Segment:
    """One communicator's, mapped by one member.  Counters only ever grow.

    ``written[r]`` counts the rounds that member r has published, ``read[r]`` those that it is
    done with; ``sent[s * size + d]`` and ``taken`` count pieces of messages from s to d.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._slot = _PAGE + SLOT_BYTES
        self._lane = SLOTS * self._slot
        self._box = _PAGE + BOX_BYTES
        counters = 6 * size + 2 * size * size
        self._lanes_at = -(-8 * counters // _PAGE) * _PAGE
        self._boxes_at = self._lanes_at + size * self._lane
        total = self._boxes_at + size * size * self._box
        if os.fstat(descriptor).st_size < total:
            os.ftruncate(descriptor, total)
        self._map = mmap.mmap(descriptor, total)
        words = memoryview(self._map)[: 8 * counters].cast("Q")
        self.joined = words[:size]
        #: pid, flag and pipe of each member's doorbell.
        self.doorbells = words[size : 4 * size]
        self.written = words[4 * size : 5 * size]
        self.read = words[5 * size : 6 * size]
        self.sent = words[6 * size : 6 * size + size * size]
        self.taken = words[6 * size + size * size :]
        self._data = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def create(cls, size: int) -> tuple[Segment, int]:
        """A new one, and the descriptor by which peers open it."""
        descriptor = os.memfd_create("hanglab-communicator", os.MFD_CLOEXEC)
        return cls(descriptor, size), descriptor

    # Rounds of collectives.

    def _slot_at(self, member: int, round_: int) -> int:
        return self._lanes_at + member * self._lane + (round_ % SLOTS) * self._slot

    def write_head(self, member: int, round_: int, head: Head) -> None:
        _HEAD.pack_into(self._map, self._slot_at(member, round_), *head)

    def head(self, member: int, round_: int) -> Head:
        return Head(*_HEAD.unpack_from(self._map, self._slot_at(member, round_)))

    def payload(self, member: int, round_: int, start: int, length: int) -> torch.Tensor:
        """Bytes ``start`` to ``start + length`` of one member's slot, shape [length], uint8."""
        at = self._slot_at(member, round_) + _PAGE + start
        return self._data[at : at + length]

    def payloads(self, round_: int, start: int, length: int) -> torch.Tensor:
        """Payloads of all members, shape [size, length], uint8."""
        at = self._slot_at(0, round_) + _PAGE + start
        return self._data.as_strided((self.size, length), (self._lane, 1), at)

    # Messages.

    def box(self, source: int, target: int, length: int) -> torch.Tensor:
        at = self._boxes_at + (source * self.size + target) * self._box + _PAGE
        return self._data[at : at + length]

    def write_wire(self, source: int, target: int, wire: int) -> None:
        at = self._boxes_at + (source * self.size + target) * self._box
        _HEAD.pack_into(self._map, at, 0, 0, wire)

    def wire(self, source: int, target: int) -> int:
        """Bytes of the whole message of which a piece lies in the box."""
        at = self._boxes_at + (source * self.size + target) * self._box
        return Head(*_HEAD.unpack_from(self._map, at)).wire
