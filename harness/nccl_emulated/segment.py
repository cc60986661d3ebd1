"""Memory that the members of a communicator share: one lane each, and one box for each pair.

Collectives go by rounds.  In a round a member publishes its call, and its data in one place of
its lane, which its peers read; a place is used again once all have read it.  Short data lies
beside the calls, so that many rounds may be open; longer data has slots of its own.  Messages go
through the box of sender and receiver.  The file has no name, and is gone with the last process
that maps it.
"""

from __future__ import annotations

import mmap
import os
import struct

import numpy as np
import torch

#: Rounds of a lane: so many may be open at once.
ROUNDS = 256
#: Bytes that lie beside a call.
SHORT_BYTES = 1 << 10
#: Slots of a lane for longer data: so many of such rounds may be open at once.
SLOTS = 8
#: Bytes that a slot takes; what is longer goes in several rounds.
SLOT_BYTES = 1 << 20
#: Bytes that a box takes; what is longer goes in several pieces.
BOX_BYTES = 1 << 18
#: Kernels that NCCL counts by their kind, in the order of the kinds.
COUNTED = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
#: Words of a member's state: its counts, its error, whether it has aborted, whether it has left.
_STATE = len(COUNTED) + 3
_PAGE = 4096
_WIRE = struct.Struct("<Q")
#: Of a call, the kind stands above the bytes on the wire.
_KIND_SHIFT = 48


def call_of(kind: int, wire: int) -> int:
    """Number that members compare before data moves: kind of kernel, bytes that one hands over."""
    return kind << _KIND_SHIFT | wire


class Segment:
    """One communicator's, mapped by one member.  Counters only ever grow.

    ``written[r]`` counts the rounds that member r has published, ``read[r]`` those that it is
    done with; ``sent[s * size + d]`` and ``taken`` count pieces of messages from s to d.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._box = _PAGE + BOX_BYTES
        counters = (6 + _STATE) * size + 2 * size * size
        calls_at = _in_pages(8 * counters)
        self._shorts_at = calls_at + _in_pages(8 * size * ROUNDS)
        self._short_lane = ROUNDS * SHORT_BYTES
        self._slots_at = self._shorts_at + size * self._short_lane
        self._slot_lane = SLOTS * SLOT_BYTES
        self._boxes_at = self._slots_at + size * self._slot_lane
        total = self._boxes_at + size * size * self._box
        if os.fstat(descriptor).st_size < total:
            os.ftruncate(descriptor, total)
        self._map = mmap.mmap(descriptor, total)
        words = memoryview(self._map)[: 8 * counters].cast("Q")
        self.joined = words[:size]
        #: pid, flag and pipe of each member's wakeup.
        self.wakeups = words[size : 4 * size]
        self.written = words[4 * size : 5 * size]
        self.read = words[5 * size : 6 * size]
        self.sent = words[6 * size : 6 * size + size * size]
        self.taken = words[6 * size + size * size : 6 * size + 2 * size * size]
        self._states = words[6 * size + 2 * size * size :]
        #: Calls of all members, shape [size, ROUNDS].
        self.calls = np.frombuffer(
            self._map, np.int64, count=size * ROUNDS, offset=calls_at
        ).reshape(size, ROUNDS)
        self._data = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def create(cls, size: int) -> tuple[Segment, int]:
        """A new one, and the descriptor by which peers open it."""
        descriptor = os.memfd_create("hanglab-communicator", os.MFD_CLOEXEC)
        return cls(descriptor, size), descriptor

    def state_of(self, rank: int) -> memoryview:
        """Words of a member: how often each of COUNTED, ``ncclResult_t``, aborted, left."""
        return self._states[rank * _STATE : (rank + 1) * _STATE]

    # Rounds of collectives.

    def shorts(self, round_: int, count: int, wire: int) -> torch.Tensor:
        """Data of all members beside so many calls, shape [size, count, wire], uint8.

        The rounds must not go past the end of the lanes.
        """
        at = self._shorts_at + round_ % ROUNDS * SHORT_BYTES
        return self._data.as_strided(
            (self.size, count, wire), (self._short_lane, SHORT_BYTES, 1), at
        )

    def slots(self, round_: int, length: int) -> torch.Tensor:
        """Data of all members in their slots of one round, shape [size, 1, length], uint8."""
        at = self._slots_at + round_ % SLOTS * SLOT_BYTES
        return self._data.as_strided((self.size, 1, length), (self._slot_lane, SLOT_BYTES, 1), at)

    # Messages.

    def box(self, source: int, target: int, length: int) -> torch.Tensor:
        at = self._boxes_at + (source * self.size + target) * self._box + _PAGE
        return self._data[at : at + length]

    def write_wire(self, source: int, target: int, wire: int) -> None:
        at = self._boxes_at + (source * self.size + target) * self._box
        _WIRE.pack_into(self._map, at, wire)

    def wire(self, source: int, target: int) -> int:
        """Bytes of the whole message of which a piece lies in the box."""
        at = self._boxes_at + (source * self.size + target) * self._box
        return int(_WIRE.unpack_from(self._map, at)[0])


def _in_pages(length: int) -> int:
    return -(-length // _PAGE) * _PAGE
